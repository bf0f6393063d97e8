// Parts of a half-precision number, and how exact sums take scales apart.
//
// With internal linkage: files that are compiled for newer processors include this.

#pragma once

#include <cstddef>
#include <cstdint>

namespace embershard {

constexpr uint32_t kInfiniteHalf = 0x7C00;

// Rows whose codes are summed as whole numbers, of bags of so many at least: fewer are not worth
// it.
constexpr int64_t kGroupRows = 32;
constexpr int64_t kExactRows = 8;

// Scales of a group are multiples of a power of two by less than 2^(11 + kShiftMax) = 2^15.
constexpr uint32_t kShiftMax = 4;
constexpr uint32_t kExponentMax = 30 - kShiftMax;
static_assert(kGroupRows * 255 < INT32_MAX >> 15);

static inline float FloatOfHalf(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000U) << 16;
  const uint32_t exponent = (half >> 10) & 0x1FU;
  const uint32_t fraction = half & 0x3FFU;
  if (exponent == 0) {  // Zero, or less than 2^-14: fraction * 2^-24, exact.
    const float value = static_cast<float>(fraction) * 0x1p-24F;
    return sign != 0 ? -value : value;
  }
  const uint32_t bits = sign | ((exponent == 31 ? 255 : exponent + 112) << 23) | (fraction << 13);
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

// What multipliers of scales from `exponent` on are multiples of.
static inline float UnitOf(uint32_t exponent) {
  const uint32_t bits = (127 - 25 + exponent) << 23;
  float unit;
  __builtin_memcpy(&unit, &bits, sizeof(unit));
  return unit;
}

// Whether a scale is a multiple of UnitOf(exponent), and its multiplier. None is above the largest
// scale that fits.
static inline bool MultiplierOf(uint32_t scale, uint32_t exponent, int16_t* multiplier) {
  if (scale >= kInfiniteHalf) return false;  // Negative ones are as well.
  const uint32_t own = scale >> 10 > 0 ? scale >> 10 : 1;
  const uint32_t fraction = scale - ((own - 1) << 10);
  const uint32_t down = own < exponent ? exponent - own : 0;
  *multiplier =
      static_cast<int16_t>(own < exponent ? fraction >> down : fraction << (own - exponent));
  return (fraction & ((uint32_t{1} << down) - 1)) == 0;
}

}  // namespace embershard
