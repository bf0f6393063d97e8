// When an open loop sends, whatever the server does: at random, or as it was recorded.

#ifndef EMBERSHARD_BENCH_ARRIVALS_H_
#define EMBERSHARD_BENCH_ARRIVALS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace embershard::bench {

// Gaps are independent and exponential with mean 1 / rate. The same seed gives the
// same times. Not thread-safe.
class PoissonArrivals {
 public:
  // REQUIRES: rate_per_second > 0.
  PoissonArrivals(double rate_per_second, uint64_t seed)
      : mean_gap_seconds_(1.0 / rate_per_second), seed_(seed) {}

  // Since the start. Never goes backwards.
  std::chrono::nanoseconds Next();

 private:
  double mean_gap_seconds_;
  uint64_t seed_;
  uint64_t count_ = 0;
  double seconds_ = 0;
};

// Times that are given, once and over again a period later, and so on. Not thread-safe.
class RecordedArrivals {
 public:
  // Every `step`-th time from `first` on, for who shares them with others.
  // REQUIRES: times that do not go backwards, a period longer than the last of them, and at
  // least one time. `times` must outlive this.
  RecordedArrivals(const std::vector<std::chrono::nanoseconds>* times,
                   std::chrono::nanoseconds period, size_t first, size_t step)
      : times_(*times), period_(period), step_(step), place_(first) {}

  // Since the start. Never goes backwards.
  std::chrono::nanoseconds Next();

 private:
  const std::vector<std::chrono::nanoseconds>& times_;
  const std::chrono::nanoseconds period_;
  const size_t step_;
  uint64_t place_;
};

}  // namespace embershard::bench

#endif  // EMBERSHARD_BENCH_ARRIVALS_H_
