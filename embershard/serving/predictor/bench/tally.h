#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"

namespace embershard::bench {

// A histogram of latencies. Buckets are at most 1/128 of their value wide. Values outside of
// 0 .. 2^44 - 1 are clamped; 2^44 nanoseconds are 4.8 hours.
//
//   values              buckets
//   0 .. 255            one for each value
//   2^k .. 2^(k+1) - 1  128 of equal width, for each k from 8 to 43
//
// Not thread-safe.
class Histogram {
 public:
  static constexpr int64_t kMaxValue = (int64_t{1} << 44) - 1;

  struct Bucket {
    int64_t low;   // Smallest value of the bucket.
    int64_t high;  // Largest value of the bucket.
    uint64_t count;
  };

  void Add(int64_t value) {
    value = std::clamp<int64_t>(value, 0, kMaxValue);
    ++counts_[value >> ShiftOf(value) << ShiftOf(value)];
    ++count_;
    max_ = std::max(max_, value);
  }

  void Merge(const Histogram& other) {
    for (const auto& [low, count] : other.counts_) counts_[low] += count;
    count_ += other.count_;
    max_ = std::max(max_, other.max_);
  }

  uint64_t count() const { return count_; }
  int64_t max() const { return max_; }  // Exact. 0 if empty.

  // Buckets that are not empty, in ascending order. `high` of the last one is max().
  std::vector<Bucket> Buckets() const {
    std::vector<Bucket> filled;
    for (const auto& [low, count] : counts_) {
      filled.push_back(
          {.low = low, .high = low + (int64_t{1} << ShiftOf(low)) - 1, .count = count});
    }
    if (!filled.empty()) filled.back().high = max_;
    return filled;
  }

 private:
  static constexpr int kPrecisionBits = 8;  // Leading bits of a value that select its bucket.

  // Number of low bits of a value that its bucket ignores.
  static int ShiftOf(int64_t value) {
    return std::max(
        0, static_cast<int>(std::bit_width(static_cast<uint64_t>(value))) - kPrecisionBits);
  }

  std::map<int64_t, uint64_t> counts_;  // Keyed by the smallest value of a bucket.
  uint64_t count_ = 0;
  int64_t max_ = 0;
};

// Tells if a request missed its deadline because it was sent late or not at all.
enum class Expired {
  kNo,           // Answered, or sent with at least half of its timeout left.
  kWithoutCall,  // Never sent: all calls in flight waited for answers.
  kBeforeSend,   // Never sent: the sender was late, though a call was free.
  kSentLate,     // Sent with less than half of its timeout left.
};

// One request, from its due time to its answer.
struct Outcome {
  Clock::time_point scheduled;  // Its due time. In a closed loop, the time it was sent.
  Clock::time_point ready;  // Later of `scheduled` and the end of the last wait for a free call.
  Clock::time_point sent;
  Clock::time_point answered;
  int code = 0;  // gRPC status code; 0 is OK.
  uint32_t examples = 0;
  size_t answer_bytes = 0;
  Expired expired = Expired::kNo;
};

// Requests scheduled before `counted_from` are warmup and not counted. Not thread-safe.
struct Tally {
  static constexpr size_t kCodes = 17;  // Number of gRPC status codes.
  static constexpr size_t kUnknownCode = 2;
  static constexpr size_t kResourceExhausted = 8;
  static constexpr size_t kMessageBytes = 300;  // Length to which messages are cut.

  bool Counts(Clock::time_point scheduled) const { return scheduled >= counted_from; }

  // `message` says why the request failed. The first message of each code is kept.
  void Add(const Outcome& outcome, const std::string& message) {
    if (!Counts(outcome.scheduled)) return;
    ++requests;
    lag.Add(Nanoseconds(outcome.sent - outcome.scheduled));
    own_lag.Add(Nanoseconds(outcome.sent - outcome.ready));
    if (outcome.expired == Expired::kWithoutCall) ++expired_without_call;
    if (outcome.expired == Expired::kBeforeSend) ++expired_before_send;
    if (outcome.expired == Expired::kSentLate) ++expired_sent_late;
    last_scheduled = std::max(last_scheduled, outcome.scheduled - counted_from);
    // Servers of others may answer with a code that gRPC does not define.
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

  // REQUIRES: both have the same `counted_from`.
  void Merge(const Tally& other) {
    requests += other.requests;
    examples_ok += other.examples_ok;
    answer_bytes += other.answer_bytes;
    expired_without_call += other.expired_without_call;
    expired_before_send += other.expired_before_send;
    expired_sent_late += other.expired_sent_late;
    for (size_t code = 0; code < kCodes; ++code) {
      by_code[code] += other.by_code[code];
      if (messages[code].empty()) messages[code] = other.messages[code];
    }
    latency.Merge(other.latency);
    refusal.Merge(other.refusal);
    lag.Merge(other.lag);
    own_lag.Merge(other.own_lag);
    last_scheduled = std::max(last_scheduled, other.last_scheduled);
    last_ok = std::max(last_ok, other.last_ok);
  }

  Clock::time_point counted_from;
  uint64_t requests = 0;
  uint64_t examples_ok = 0;
  uint64_t answer_bytes = 0;
  std::array<uint64_t, kCodes> by_code{};
  std::array<std::string, kCodes> messages{};

  // Counts by `Expired`. All of these requests also count as DEADLINE_EXCEEDED.
  uint64_t expired_without_call = 0;
  uint64_t expired_before_send = 0;
  uint64_t expired_sent_late = 0;

  // In nanoseconds.
  Histogram latency{};  // From the due time to the answer, for answers that are OK.
  Histogram refusal{};  // From sending to the answer, for answers RESOURCE_EXHAUSTED.
  Histogram lag{};      // From the due time to sending.
  Histogram own_lag{};  // `lag` without the wait for a free call, so the delay of the tool itself.

  // Time from `counted_from` to the last request's due time, and to the last OK answer. Zero if
  // there is none.
  Clock::duration last_scheduled{};
  Clock::duration last_ok{};

 private:
  static int64_t Nanoseconds(Clock::duration duration) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
  }
};

}  // namespace embershard::bench
