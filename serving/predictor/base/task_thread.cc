#include "base/task_thread.h"

#include <utility>

namespace embershard {

TaskThread::TaskThread(std::function<void()> task)
    : task_(std::move(task)), thread_([this] { Loop(); }) {}

TaskThread::~TaskThread() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void TaskThread::Start() {
  {
    std::lock_guard lock(mutex_);
    started_ = true;
  }
  changed_.notify_all();
}

void TaskThread::Wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !started_; });
}

void TaskThread::Loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return started_ || stopping_; });
    if (!started_) return;
    lock.unlock();
    task_();
    lock.lock();
    started_ = false;
    changed_.notify_all();
  }
}

}  // namespace embershard
