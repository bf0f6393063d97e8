// When an open loop sends: a Poisson process, whatever the server does.

#ifndef EMBERSHARD_BENCH_ARRIVALS_H_
#define EMBERSHARD_BENCH_ARRIVALS_H_

#include <chrono>
#include <cstdint>

namespace embershard {

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

}  // namespace embershard

#endif  // EMBERSHARD_BENCH_ARRIVALS_H_
