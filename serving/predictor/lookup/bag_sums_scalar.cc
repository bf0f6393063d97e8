// For processors without AVX2: four floats at a time, in plain C++.

#include <bit>
#include <cmath>

#include "lookup/bag_sums_loop.h"

namespace embershard {
namespace {

float FloatOfHalf(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000U) << 16;
  const uint32_t exponent = (half >> 10) & 0x1FU;
  const uint32_t fraction = half & 0x3FFU;
  if (exponent == 0) {  // Zero, or less than 2^-14: fraction * 2^-24, exact.
    const float value = static_cast<float>(fraction) * 0x1p-24F;
    return sign != 0 ? -value : value;
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | (wide << 23) | (fraction << 13));
}

struct Scalar {
  static constexpr size_t kWidth = 4;
  struct Floats {
    float of[kWidth];
  };

  static Floats Zero() { return Set(0); }
  static Floats Set(float value) { return {{value, value, value, value}}; }
  static Floats Half(const std::byte* at) { return Set(HalfAt(at)); }

  static Floats Add(Floats a, const Floats& b) {
    for (size_t i = 0; i < kWidth; ++i) a.of[i] += b.of[i];
    return a;
  }
  static Floats Multiply(Floats a, const Floats& b) {
    for (size_t i = 0; i < kWidth; ++i) a.of[i] *= b.of[i];
    return a;
  }
  static Floats MultiplyAdd(Floats a, const Floats& b, const Floats& c) {
    for (size_t i = 0; i < kWidth; ++i) a.of[i] = std::fma(a.of[i], b.of[i], c.of[i]);
    return a;
  }

  static Floats Int8(const std::byte* at, size_t) {
    Floats codes;
    for (size_t i = 0; i < kWidth; ++i) codes.of[i] = static_cast<float>(at[i]);
    return codes;
  }
  static Floats Int4(const std::byte* at, size_t) {
    Floats codes;
    for (size_t i = 0; i < kWidth; ++i) {
      codes.of[i] = static_cast<float>((at[i / 2] >> (i % 2 == 0 ? 0 : 4)) & std::byte{15});
    }
    return codes;
  }
  static Floats Fp16(const std::byte* at, size_t) {
    Floats values;
    for (size_t i = 0; i < kWidth; ++i) values.of[i] = HalfAt(at + 2 * i);
    return values;
  }
  static Floats Fp32(const std::byte* at, size_t) {
    Floats values;
    __builtin_memcpy(values.of, at, sizeof(values.of));
    return values;
  }
  static void Store(float* to, size_t n, const Floats& values) {
    for (size_t i = 0; i < n; ++i) to[i] = values.of[i];
  }

 private:
  static float HalfAt(const std::byte* at) {
    uint16_t bits;
    __builtin_memcpy(&bits, at, sizeof(bits));
    return FloatOfHalf(bits);
  }
};

}  // namespace

const BagSumsKernel kScalarBagSums = KernelOf<Scalar>("scalar");

}  // namespace embershard
