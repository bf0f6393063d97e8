#include "base/task_thread.h"

#include <utility>

namespace embershard {

TaskThread::TaskThread(std::function<void()> task)
    : task_(std::move(task)), thread_([this] { Loop(); }) {}

TaskThread::~TaskThread() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

void TaskThread::Start() {
  {
    const MutexLock lock(mutex_);
    started_ = true;
  }
  changed_.NotifyAll();
}

void TaskThread::Wait() {
  const MutexLock lock(mutex_);
  while (started_) changed_.Wait(mutex_);
}

void TaskThread::Loop() {
  MutexLock lock(mutex_);
  for (;;) {
    while (!started_ && !stopping_) changed_.Wait(mutex_);
    if (!started_) return;
    lock.Unlock();
    task_();
    lock.Lock();
    started_ = false;
    changed_.NotifyAll();
  }
}

}  // namespace embershard
