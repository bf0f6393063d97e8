// Predicts how long a batch will run, from batches that ran. No clock, no lock, no thread.

#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/clock.h"

namespace embershard {

// Size of a batch, as far as its run time depends on it.
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
// of two of requests, of examples and of ids. Not thread-safe; allocates no memory.
//
//   a batch took longer     the estimate grows by 1/8
//   it did not              the estimate shrinks by 1/72
//
// The two balance if one batch in ten takes longer, whatever the distribution. If batches become
// ten times slower, the estimate follows within about thirty of them. A bucket that was not updated
// for kMemory starts again from its next batch: if its estimate were so high that all such batches
// were refused, nothing else would correct it.
class BatchCosts {
 public:
  static constexpr std::chrono::seconds kMemory{1};

  void Learn(const BatchSize& size, std::chrono::nanoseconds took, Clock::time_point now);

  // Median nanoseconds per example of batches in the same bucket of examples. Zero if that bucket
  // was not updated at `since` or later.
  float PerExample(uint64_t examples, Clock::time_point since) const;
  // The same for the largest bucket up to this one that was ever updated.
  float PerExample(uint64_t examples) const;

  // The 90th percentile of such batches, from buckets that were updated at `since` or later. If the
  // bucket of this size was not, the larger of the estimates by examples alone and by ids alone; if
  // those were not either, the estimates of the next smaller buckets. Zero if nothing is known.
  std::chrono::nanoseconds Predict(const BatchSize& size, Clock::time_point since) const;

 private:
  static constexpr size_t kRequests = 14;  // The last bucket holds 4096 requests and more.
  static constexpr size_t kExamples = 20;
  static constexpr size_t kIds = 26;

  struct Estimate {
    float nanoseconds = 0;  // 0: no batch yet.
    Clock::time_point seen;

    // Moves one factor towards `took`, or all the way if the estimate is older than kMemory.
    void Learn(float took, float grows, float shrinks, Clock::time_point now);
    // Zero if it was not updated since then.
    float Since(Clock::time_point since) const { return seen >= since ? nanoseconds : 0; }
  };

  // The estimate of this bucket, or of the next smaller one with an estimate. Only estimates
  // updated at `since` or later count. Zero if there is none.
  static float AtMost(std::span<const Estimate> estimates, size_t bucket, Clock::time_point since);

  std::array<std::array<std::array<Estimate, kIds>, kExamples>, kRequests> of_size_{};
  std::array<Estimate, kExamples> of_examples_{};
  std::array<Estimate, kIds> of_ids_{};
  std::array<Estimate, kExamples> per_example_{};
};

}  // namespace embershard
