#include "bench/arrivals.h"

#include <cmath>

#include "base/split_mix.h"

namespace embershard::bench {

std::chrono::nanoseconds PoissonArrivals::Next() {
  seconds_ -= std::log1p(-UnitInterval(SplitMix64(seed_, ++count_))) * mean_gap_seconds_;
  return std::chrono::nanoseconds(static_cast<int64_t>(seconds_ * 1e9));
}

std::chrono::nanoseconds RecordedArrivals::Next() {
  const uint64_t round = place_ / times_.size();
  const std::chrono::nanoseconds time = times_[place_ % times_.size()];
  place_ += step_;
  return time + static_cast<int64_t>(round) * period_;
}

}  // namespace embershard::bench
