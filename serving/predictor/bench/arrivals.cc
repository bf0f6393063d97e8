#include "bench/arrivals.h"

#include <cmath>

#include "base/split_mix.h"

namespace embershard {

std::chrono::nanoseconds PoissonArrivals::Next() {
  seconds_ -= std::log1p(-UnitInterval(SplitMix64(seed_, ++count_))) * mean_gap_seconds_;
  return std::chrono::nanoseconds(static_cast<int64_t>(seconds_ * 1e9));
}

}  // namespace embershard
