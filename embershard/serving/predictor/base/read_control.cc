#include "base/read_control.h"

#include <algorithm>
#include <chrono>

namespace embershard {

Status LoadingStopped() {
  return {StatusCode::kUnavailable, "loading was given up: the server is shutting down"};
}

Clock::time_point Pace::After(size_t bytes, Clock::time_point now) {
  if (bytes_per_second_ <= 0) return now;
  const std::chrono::duration<double> takes(static_cast<double>(bytes) / bytes_per_second_);
  next_ = std::max(next_, now) + std::chrono::ceil<Clock::duration>(takes);
  return next_;
}

Status ReadControl::Spend(size_t bytes) {
  ++steps_;
  const MutexLock lock(mutex_);
  const Clock::time_point next = pace_.After(bytes, Clock::now());
  while (!stopped_ && changed_.WaitUntil(mutex_, next)) continue;
  ++steps_;  // Before the wait, so that a low rate does not look like a hung load.
  return stopped_ ? LoadingStopped() : Status();
}

Status ReadControl::Advance() {
  ++steps_;
  const MutexLock lock(mutex_);
  return stopped_ ? LoadingStopped() : Status();
}

void ReadControl::Stop() {
  const MutexLock lock(mutex_);
  stopped_ = true;
  changed_.NotifyAll();
}

}  // namespace embershard
