#include "base/task_thread.h"

#include <utility>

#include "base/clock.h"

namespace embershard {
namespace {

// Sleeping and waking take about 50 us, more on virtual machines.
constexpr std::chrono::microseconds kSpin(50);

template <class Done>
void Spin(const Done& done) {
  const Clock::time_point end = Clock::now() + kSpin;
  while (!done() && Clock::now() < end) std::this_thread::yield();
}

}  // namespace

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
    started_at_ = Clock::now();
    started_ = true;
  }
  changed_.NotifyAll();
}

void TaskThread::Wait() {
  Spin([this] { return !started_; });
  const MutexLock lock(mutex_);
  while (started_) changed_.Wait(mutex_);
}

void TaskThread::Loop() {
  MutexLock lock(mutex_);
  bool spins = false;  // The last pause was short, so the next one may be short, too.
  for (;;) {
    const Clock::time_point paused = Clock::now();
    if (spins) {
      lock.Unlock();
      Spin([this] { return started_.load(); });
      lock.Lock();
    }
    while (!started_ && !stopping_) changed_.Wait(mutex_);
    if (!started_) return;
    spins = started_at_ - paused < kSpin;
    lock.Unlock();
    task_();
    lock.Lock();
    started_ = false;
    changed_.NotifyAll();
  }
}

}  // namespace embershard
