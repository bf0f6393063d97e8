// Half-precision numbers, and the integer multipliers that exact sums use as scales.
//
// Functions have internal linkage, because files compiled for newer processors include this.

#pragma once

#include <cstddef>
#include <cstdint>

namespace embershard {

constexpr uint32_t kInfiniteHalf = 0x7C00;

constexpr int64_t kGroupRows = 32;  // Rows whose codes are summed as integers together.
constexpr int64_t kExactRows = 8;   // Bags of fewer rows gain nothing from integer sums.

// The scale of a row in a group is a power of two times an integer below 2^(11 + kShiftMax) = 2^15.
constexpr uint32_t kShiftMax = 4;
constexpr uint32_t kExponentMax = 30 - kShiftMax;
static_assert(kGroupRows * 255 < INT32_MAX >> 15);

static inline float FloatOfHalf(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000U) << 16;
  const uint32_t exponent = (half >> 10) & 0x1FU;
  const uint32_t fraction = half & 0x3FFU;
  if (exponent == 0) {  // Zero or subnormal: fraction * 2^-24, exact.
    const float value = static_cast<float>(fraction) * 0x1p-24F;
    return sign != 0 ? -value : value;
  }
  const uint32_t bits = sign | ((exponent == 31 ? 255 : exponent + 112) << 23) | (fraction << 13);
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

// The unit of multipliers, 2^(exponent - 25). Scales of at least this exponent are multiples of it.
static inline float UnitOf(uint32_t exponent) {
  const uint32_t bits = (127 - 25 + exponent) << 23;
  float unit;
  __builtin_memcpy(&unit, &bits, sizeof(unit));
  return unit;
}

// Sets the multiplier if `scale` is finite, not negative, and a multiple of UnitOf(exponent).
// REQUIRES: the multiplier fits into 16 bits.
static inline bool MultiplierOf(uint32_t scale, uint32_t exponent, int16_t* multiplier) {
  if (scale >= kInfiniteHalf) return false;  // Infinite, NaN or negative.
  const uint32_t own = scale >> 10 > 0 ? scale >> 10 : 1;
  const uint32_t fraction = scale - ((own - 1) << 10);
  const uint32_t down = own < exponent ? exponent - own : 0;
  *multiplier =
      static_cast<int16_t>(own < exponent ? fraction >> down : fraction << (own - exponent));
  return (fraction & ((uint32_t{1} << down) - 1)) == 0;
}

}  // namespace embershard
