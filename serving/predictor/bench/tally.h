// What a run has counted.

#pragma once

#include <algorithm>
#include <array>
#include <chrono>
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
  static constexpr size_t kUnknownCode = 2;
  static constexpr size_t kResourceExhausted = 8;
  static constexpr size_t kMessageBytes = 300;  // Of those that are kept.

  bool Counts(Clock::time_point scheduled) const { return scheduled >= counted_from; }

  // `message`: why it failed; the first of each code is kept.
  void Add(const Outcome& outcome, const std::string& message) {
    if (!Counts(outcome.scheduled)) return;
    ++requests;
    lag.Add(Nanoseconds(outcome.sent - outcome.scheduled));
    last_scheduled = std::max(last_scheduled, outcome.scheduled - counted_from);
    // Another server may answer with a number that gRPC does not name.
    const bool known = outcome.code >= 0 && outcome.code < static_cast<int>(kCodes);
    const size_t code = known ? static_cast<size_t>(outcome.code) : kUnknownCode;
    ++by_code[code];
    if (code == kResourceExhausted) refusal.Add(Nanoseconds(outcome.answered - outcome.sent));
    if (code == 0) {
      latency.Add(Nanoseconds(outcome.answered - outcome.scheduled));
      last_ok = std::max(last_ok, outcome.answered - counted_from);
      examples_ok += outcome.examples;
      answer_bytes += outcome.answer_bytes;
    } else if (messages[code].empty()) {
      messages[code] = message.substr(0, kMessageBytes);
    }
  }

  // REQUIRES: the same `counted_from`.
  void Merge(const Tally& other) {
    requests += other.requests;
    examples_ok += other.examples_ok;
    answer_bytes += other.answer_bytes;
    for (size_t code = 0; code < kCodes; ++code) {
      by_code[code] += other.by_code[code];
      if (messages[code].empty()) messages[code] = other.messages[code];
    }
    latency.Merge(other.latency);
    refusal.Merge(other.refusal);
    lag.Merge(other.lag);
    last_scheduled = std::max(last_scheduled, other.last_scheduled);
    last_ok = std::max(last_ok, other.last_ok);
  }

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

 private:
  static int64_t Nanoseconds(Clock::duration duration) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
  }
};

}  // namespace embershard::bench
