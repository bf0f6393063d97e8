#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "base/clock.h"
#include "base/mutex.h"

namespace embershard {

// Used by one caller at a time. The thread sleeps between tasks. If the last pause was short, it
// first spins for at most the time that sleeping and waking would take.
class TaskThread {
 public:
  // `task` must not throw. Start() and Wait() synchronize its data, so it needs no lock.
  explicit TaskThread(std::function<void()> task);
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;
  ~TaskThread();  // Lets a started task finish.

  // REQUIRES: every earlier Start() was followed by Wait().
  void Start();

  void Wait();

 private:
  void Loop();

  const std::function<void()> task_;

  Mutex mutex_;
  CondVar changed_;                    // Signalled when the fields below change.
  std::atomic<bool> started_ = false;  // True until the task is done. Changed with the mutex held.
  Clock::time_point started_at_ GUARDED_BY(mutex_);  // Time of the last Start().
  bool stopping_ GUARDED_BY(mutex_) = false;

  std::thread thread_;  // Last, so that Loop() starts after all fields exist.
};

}  // namespace embershard
