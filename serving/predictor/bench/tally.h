// What a run has counted.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/clock.h"
#include "bench/histogram.h"

namespace embershard::bench {

// One request, from its schedule to its answer.
struct Outcome {
  Clock::time_point scheduled;  // In a closed loop the same as `sent`.
  Clock::time_point sent;
  Clock::time_point answered;
  int code = 0;  // gRPC's, 0 is OK.
  uint32_t examples = 0;
  size_t answer_bytes = 0;
};

// Requests scheduled before `counted_from` warm up and leave no trace. Not thread-safe.
struct Tally {
  static constexpr size_t kCodes = 17;  // gRPC's, 0 .. 16.

  bool Counts(Clock::time_point scheduled) const { return scheduled >= counted_from; }

  // `message`: why it failed; the first of each code is kept.
  void Add(const Outcome& outcome, const std::string& message);

  // REQUIRES: the same `counted_from`.
  void Merge(const Tally& other);

  Clock::time_point counted_from;
  uint64_t requests = 0;
  uint64_t examples_ok = 0;
  uint64_t answer_bytes = 0;
  std::array<uint64_t, kCodes> by_code{};
  std::array<std::string, kCodes> messages{};

  // In nanoseconds.
  Histogram latency{};  // Of answers that are OK, from the schedule to the answer.
  Histogram refusal{};  // Of RESOURCE_EXHAUSTED, from sending to the answer.
  Histogram lag{};      // From the schedule to sending: the tool's own delay.

  // From `counted_from` to the last request's schedule, and to the last answer that is OK. Zero
  // where there is none.
  Clock::duration last_scheduled{};
  Clock::duration last_ok{};
};

}  // namespace embershard::bench
