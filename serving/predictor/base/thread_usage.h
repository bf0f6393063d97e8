// What a thread has had of the processors.

#ifndef EMBERSHARD_BASE_THREAD_USAGE_H_
#define EMBERSHARD_BASE_THREAD_USAGE_H_

#include <chrono>
#include <cstdint>

#include "base/clock.h"

namespace embershard {

// Of one thread, since it began.
struct ThreadUsage {
  Clock::time_point now;
  std::chrono::nanoseconds processor{0};  // For so long it has run.
  int64_t sleeps = 0;                     // So often it gave its processor back, to wait.
};

// Of the calling thread.
ThreadUsage UsageOfThread();

}  // namespace embershard

#endif  // EMBERSHARD_BASE_THREAD_USAGE_H_
