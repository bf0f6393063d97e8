#include "telemetry/slow_log.h"

#include <utility>

namespace embershard {

SlowLog::SlowLog(Clock::duration threshold) : threshold_(threshold) {}

bool SlowLog::HasRoom() {
  const std::lock_guard lock(mutex_);
  return waiting_.size() < kCapacity;
}

bool SlowLog::Add(SlowRequest request) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() == kCapacity) return false;
    waiting_.push_back(std::move(request));
  }
  changed_.notify_one();
  return true;
}

std::vector<SlowRequest> SlowLog::Wait(Clock::duration timeout) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, timeout, [this] { return closed_ || !waiting_.empty(); });
  return std::exchange(waiting_, {});
}

void SlowLog::Close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
}

}  // namespace embershard
