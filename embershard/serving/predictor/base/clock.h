#pragma once

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>

namespace embershard {

using Clock = std::chrono::steady_clock;

// Whole microseconds, cut to 0 .. 2^32 - 1 (71 minutes).
inline uint32_t MicrosecondsBetween(Clock::time_point from, Clock::time_point to) {
  const auto elapsed = std::chrono::duration_cast<std::chrono::microseconds>(to - from).count();
  return static_cast<uint32_t>(
      std::clamp<int64_t>(elapsed, 0, std::numeric_limits<uint32_t>::max()));
}

// CPU time of the calling thread.
inline double ThreadCpuSeconds() {
  timespec used;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

// Seconds since 1970 in UTC.
inline double UnixSeconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

}  // namespace embershard
