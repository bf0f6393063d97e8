// Parts of a half-precision number, and how exact sums take scales apart.
//
// With internal linkage: files that are compiled for newer processors include this.

#ifndef EMBERSHARD_LOOKUP_HALF_H_
#define EMBERSHARD_LOOKUP_HALF_H_

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

}  // namespace embershard

#endif  // EMBERSHARD_LOOKUP_HALF_H_
