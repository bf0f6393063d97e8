// Stateless pseudorandom numbers, determined by a seed and a position in its sequence.
// Source: SplitMix64 of Steele, Lea and Flood, "Fast splittable pseudorandom number
// generators", 2014.

#pragma once

#include <cstdint>

namespace embershard {

// Number at position `place` (from 1) of a seed's sequence. All 64 bits are equally good.
inline uint64_t SplitMix64(uint64_t seed, uint64_t place) {
  uint64_t bits = seed + place * 0x9e3779b97f4a7c15;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  return bits ^ (bits >> 31);
}

inline double UnitInterval(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

}  // namespace embershard
