#include "bench/arrivals.h"

#include <cmath>

namespace embershard {
namespace {

// SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
uint64_t NextBits(uint64_t* state) {
  uint64_t bits = *state += 0x9e3779b97f4a7c15;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  return bits ^ (bits >> 31);
}

}  // namespace

std::chrono::nanoseconds PoissonArrivals::Next() {
  const double uniform = static_cast<double>(NextBits(&state_) >> 11) * 0x1p-53;  // [0, 1)
  seconds_ -= std::log1p(-uniform) * mean_gap_seconds_;
  return std::chrono::nanoseconds(static_cast<int64_t>(seconds_ * 1e9));
}

}  // namespace embershard
