#include "telemetry/slow_log.h"

#include <utility>

namespace embershard {

SlowLog::SlowLog(Clock::duration threshold) : threshold_(threshold) {}

bool SlowLog::HasRoom() {
  const MutexLock lock(mutex_);
  return waiting_.size() < kCapacity;
}

bool SlowLog::Add(SlowRequest request) {
  {
    const MutexLock lock(mutex_);
    if (waiting_.size() == kCapacity) return false;
    waiting_.push_back(std::move(request));
  }
  changed_.NotifyOne();
  return true;
}

std::vector<SlowRequest> SlowLog::Wait(Clock::duration timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  const MutexLock lock(mutex_);
  while (!closed_ && waiting_.empty() && changed_.WaitUntil(mutex_, deadline)) continue;
  return std::exchange(waiting_, {});
}

void SlowLog::Close() {
  {
    const MutexLock lock(mutex_);
    closed_ = true;
  }
  changed_.NotifyAll();
}

}  // namespace embershard
