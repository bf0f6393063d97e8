// What a run has counted.

#ifndef EMBERSHARD_BENCH_TALLY_H_
#define EMBERSHARD_BENCH_TALLY_H_

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
class Tally {
 public:
  static constexpr size_t kCodes = 17;  // gRPC's, 0 .. 16.

  explicit Tally(Clock::time_point counted_from) : counted_from_(counted_from) {}

  bool Counts(Clock::time_point scheduled) const { return scheduled >= counted_from_; }

  // `message`: why it failed; the first of each code is kept.
  void Add(const Outcome& outcome, const std::string& message);

  // REQUIRES: the same `counted_from`.
  void Merge(const Tally& other);

  uint64_t requests() const { return requests_; }
  uint64_t examples_ok() const { return examples_ok_; }
  uint64_t answer_bytes() const { return answer_bytes_; }
  const std::array<uint64_t, kCodes>& by_code() const { return by_code_; }
  const std::array<std::string, kCodes>& messages() const { return messages_; }

  // Of answers that are OK, from the schedule to the answer, in nanoseconds.
  const Histogram& latency() const { return latency_; }

  // Of RESOURCE_EXHAUSTED, from sending to the answer, in nanoseconds.
  const Histogram& refusal() const { return refusal_; }

  // How much later than scheduled requests were sent, in nanoseconds: the tool's own delay.
  const Histogram& lag() const { return lag_; }

  // From `counted_from` to the last request's schedule, and to the last answer that is
  // OK. Zero where there is none.
  Clock::duration last_scheduled() const { return last_scheduled_; }
  Clock::duration last_ok() const { return last_ok_; }

 private:
  Clock::time_point counted_from_;
  uint64_t requests_ = 0;
  uint64_t examples_ok_ = 0;
  uint64_t answer_bytes_ = 0;
  std::array<uint64_t, kCodes> by_code_{};
  std::array<std::string, kCodes> messages_;
  Histogram latency_;
  Histogram refusal_;
  Histogram lag_;
  Clock::duration last_scheduled_{};
  Clock::duration last_ok_{};
};

}  // namespace embershard::bench

#endif  // EMBERSHARD_BENCH_TALLY_H_
