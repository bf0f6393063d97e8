#include "lookup/device_thread.h"

#include <utility>

namespace embershard {

DeviceThread::DeviceThread(std::function<void()> task)
    : task_(std::move(task)), thread_([this] { Loop(); }) {}

DeviceThread::~DeviceThread() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void DeviceThread::Start() {
  {
    std::lock_guard lock(mutex_);
    started_ = true;
  }
  changed_.notify_all();
}

void DeviceThread::Wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !started_; });
}

void DeviceThread::Loop() {
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
