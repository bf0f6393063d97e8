// How long a batch will run, learned from those that ran. No clock, no lock, no thread.

#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/clock.h"

namespace embershard {

// What a batch holds, as far as its time depends on it.
struct BatchSize {
  uint64_t requests = 0;
  uint64_t examples = 0;
  uint64_t ids = 0;

  BatchSize& operator+=(const BatchSize& more) {
    requests += more.requests;
    examples += more.examples;
    ids += more.ids;
    return *this;
  }
  BatchSize& operator-=(const BatchSize& less) {
    requests -= less.requests;
    examples -= less.examples;
    ids -= less.ids;
    return *this;
  }
};

// A running estimate of the 90th percentile for each bucket of sizes, where a bucket is a power
// of two of requests, of examples and of ids. Not thread-safe; takes no memory.
//
//   a batch took longer   the estimate grows by an eighth
//   or not                it shrinks by a seventy-second
//
// The two are in balance where one batch in ten takes longer, whatever the distribution, and
// some thirty batches after it has become ten times slower. What has not been seen for kMemory
// begins anew: an estimate by which all such batches are refused would never be corrected.
class BatchCosts {
 public:
  static constexpr std::chrono::seconds kMemory{1};

  // A batch of this size took so long.
  void Learn(const BatchSize& size, std::chrono::nanoseconds took, Clock::time_point now);

  // Nanoseconds for each example, the median of batches whose number of examples is in the same
  // bucket, if one was seen at `since` or later. Zero where none was.
  float PerExample(uint64_t examples, Clock::time_point since) const;
  // The same of the largest such bucket up to this one in which a batch was seen, however long ago.
  float PerExample(uint64_t examples) const;

  // The 90th percentile of such batches, of what was last seen at `since` or later. Where none
  // was, that of batches with as many examples or of those with as many ids, whichever is more;
  // where none of those was, of the next smaller. Zero where nothing is known.
  std::chrono::nanoseconds Predict(const BatchSize& size, Clock::time_point since) const;

 private:
  static constexpr size_t kRequests = 14;  // Up to 4095; beyond, the last bucket.
  static constexpr size_t kExamples = 20;
  static constexpr size_t kIds = 26;

  struct Estimate {
    float nanoseconds = 0;  // 0: none.
    Clock::time_point seen;

    // One step by a factor towards it, or all the way where the last is older than kMemory.
    void Learn(float took, float grows, float shrinks, Clock::time_point now);
    // Zero where it was not seen since.
    float Since(Clock::time_point since) const { return seen >= since ? nanoseconds : 0; }
  };

  // Of this bucket or, where nothing is known, of the next smaller.
  static float AtMost(std::span<const Estimate> estimates, size_t bucket, Clock::time_point since);

  std::array<std::array<std::array<Estimate, kIds>, kExamples>, kRequests> of_size_{};
  std::array<Estimate, kExamples> of_examples_{};
  std::array<Estimate, kIds> of_ids_{};
  std::array<Estimate, kExamples> per_example_{};
};

}  // namespace embershard
