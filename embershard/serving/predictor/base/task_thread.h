// A thread that runs the same task again and again, each time another thread says so.

#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "base/clock.h"
#include "base/mutex.h"

namespace embershard {

// For one caller at a time. Sleeps while there is nothing to do, but not in pauses that follow a
// short one and are shorter than falling asleep and waking up: tasks back to back.
class TaskThread {
 public:
  // `task` must not throw. What it reads and writes is handed over by Start() and
  // Wait(): it needs no lock of its own.
  explicit TaskThread(std::function<void()> task);
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;
  ~TaskThread();  // Lets a started task finish.

  // Runs the task once. REQUIRES: every earlier Start() was followed by Wait().
  void Start();

  // Returns when the started task is done.
  void Wait();

 private:
  void Loop();

  const std::function<void()> task_;

  Mutex mutex_;
  CondVar changed_;                    // Signalled when the fields below change.
  std::atomic<bool> started_ = false;  // Until the task is done. Changed under the mutex.
  Clock::time_point started_at_ GUARDED_BY(mutex_);  // Of the last Start().
  bool stopping_ GUARDED_BY(mutex_) = false;

  std::thread thread_;  // Last, so that Loop() sees every field built.
};

}  // namespace embershard
