// How often which size was seen, in a few fixed buckets.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace embershard {

// What a histogram held at one moment.
struct HistogramSnapshot {
  std::vector<double> bounds;    // Upper bounds, ascending; each belongs to its own bucket.
  std::vector<uint64_t> counts;  // One more than bounds: the last is beyond them all.
  double sum = 0;
};

// Counts integers; shows them in a unit that is `per_unit` of them, for example 1e9 for
// nanoseconds that are shown as seconds. So bounds are exact at their edges and sums lose
// nothing. Any thread may add and read at any time; nobody waits.
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
  // 1 % .. 100 % of `whole`, shown as 0.01 .. 1. Add() takes hundred times the part.
  static BucketedHistogram OfPercent(uint64_t whole);

  void Add(uint64_t value) {
    size_t bucket = 0;
    while (bucket < bounds_.size() && bounds_[bucket] < value) ++bucket;
    counts_[bucket].fetch_add(1, std::memory_order_relaxed);
    sum_.fetch_add(value, std::memory_order_relaxed);
  }

  // Of what was added before; what is added meanwhile may be half in it.
  HistogramSnapshot Read() const;

 private:
  const std::vector<uint64_t> bounds_;
  const double per_unit_;
  std::vector<std::atomic<uint64_t>> counts_;  // [bounds + 1]
  std::atomic<uint64_t> sum_ = 0;
};

}  // namespace embershard
