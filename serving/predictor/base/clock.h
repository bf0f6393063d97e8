#ifndef EMBERSHARD_BASE_CLOCK_H_
#define EMBERSHARD_BASE_CLOCK_H_

#include <chrono>
#include <cstdint>

namespace embershard {

using Clock = std::chrono::steady_clock;

inline uint32_t MicrosecondsBetween(Clock::time_point from, Clock::time_point to) {
  return static_cast<uint32_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(to - from).count());
}

}  // namespace embershard

#endif  // EMBERSHARD_BASE_CLOCK_H_
