#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace embershard {

struct HistogramSnapshot {
  std::vector<double> bounds;    // Inclusive upper bounds, ascending.
  std::vector<uint64_t> counts;  // [bounds + 1]; the last bucket is above all bounds.
  double sum = 0;
};

// Counts integers and reports them divided by `per_unit`, for example 1e9 to report nanoseconds as
// seconds. Integers make bounds and sums exact. Thread-safe and lock-free.
class BucketedHistogram {
 public:
  // REQUIRES: `bounds` ascending, per_unit > 0.
  BucketedHistogram(std::vector<uint64_t> bounds, double per_unit);

  // 50 us .. 10 s, in nanoseconds.
  static BucketedHistogram OfSeconds();
  // 1e-7, 2e-7, 5e-7 .. 10, in units of 1e-9. Add() takes Difference().
  static BucketedHistogram OfDifferences();
  static uint64_t Difference(double difference);
  // 1, 2, 4, ... 2^last_power.
  static BucketedHistogram OfCounts(int last_power);
  // 1 % .. 100 % of `whole`, reported as 0.01 .. 1. Add() takes 100 times the part.
  static BucketedHistogram OfPercent(uint64_t whole);

  void Add(uint64_t value) {
    size_t bucket = 0;
    while (bucket < bounds_.size() && bounds_[bucket] < value) ++bucket;
    counts_[bucket].fetch_add(1, std::memory_order_relaxed);
    sum_.fetch_add(value, std::memory_order_relaxed);
  }

  // Includes everything added before; a concurrent Add() may be included in part.
  HistogramSnapshot Read() const;

 private:
  const std::vector<uint64_t> bounds_;
  const double per_unit_;
  std::vector<std::atomic<uint64_t>> counts_;  // [bounds + 1]
  std::atomic<uint64_t> sum_ = 0;
};

}  // namespace embershard
