// The kernel for processors without AVX2: plain C++, four floats at a time.

#include <cmath>

#include "lookup/exact_sums.h"
#include "lookup/half.h"

namespace embershard {
namespace {

struct Scalar {
  static constexpr size_t kWidth = 4;
  struct Floats {
    float lanes[kWidth];
  };

  static Floats Zero() { return Set(0); }
  static Floats Set(float value) { return {{value, value, value, value}}; }
  static Floats Half(const std::byte* at) { return Set(HalfAt(at)); }

  static Floats Add(Floats a, const Floats& b) {
    for (size_t i = 0; i < kWidth; ++i) a.lanes[i] += b.lanes[i];
    return a;
  }
  static Floats Multiply(Floats a, const Floats& b) {
    for (size_t i = 0; i < kWidth; ++i) a.lanes[i] *= b.lanes[i];
    return a;
  }
  static Floats MultiplyAdd(Floats a, const Floats& b, const Floats& c) {
    for (size_t i = 0; i < kWidth; ++i) a.lanes[i] = std::fma(a.lanes[i], b.lanes[i], c.lanes[i]);
    return a;
  }

  static Floats Int8(const std::byte* at, size_t) {
    Floats codes;
    for (size_t i = 0; i < kWidth; ++i) codes.lanes[i] = static_cast<float>(at[i]);
    return codes;
  }
  static Floats Int4(const std::byte* at, size_t) {
    Floats codes;
    for (size_t i = 0; i < kWidth; ++i) {
      codes.lanes[i] = static_cast<float>((at[i / 2] >> (i % 2 == 0 ? 0 : 4)) & std::byte{15});
    }
    return codes;
  }
  static Floats Fp16(const std::byte* at, size_t) {
    Floats values;
    for (size_t i = 0; i < kWidth; ++i) values.lanes[i] = HalfAt(at + 2 * i);
    return values;
  }
  static Floats Fp32(const std::byte* at, size_t) {
    Floats values;
    __builtin_memcpy(values.lanes, at, sizeof(values.lanes));
    return values;
  }
  static void Store(float* to, size_t n, const Floats& values) {
    for (size_t i = 0; i < n; ++i) to[i] = values.lanes[i];
  }

 private:
  static float HalfAt(const std::byte* at) {
    uint16_t bits;
    __builtin_memcpy(&bits, at, sizeof(bits));
    return FloatOfHalf(bits);
  }
};

struct Headers {
  static void Read(const std::byte* const* codes, size_t code_offset, uint32_t exponent,
                   int16_t* multipliers, float* biases) {
    for (int64_t i = 0; i < kHeaderRows; ++i) {
      uint32_t header;
      __builtin_memcpy(&header, codes[i] - code_offset, sizeof(header));
      const uint32_t shift = ((header & 0xFFFFU) >> 10) - exponent;
      const bool fits = shift <= kShiftMax;
      multipliers[i] = static_cast<int16_t>(fits ? ((header & 0x3FFU) | 0x400U) << shift : 0);
      biases[i] = fits ? FloatOfHalf(static_cast<uint16_t>(header >> 16)) : NAN;
    }
  }
  static float Sum(const float* values, size_t n) {
    float lanes[kHeaderRows] = {};
    for (size_t i = 0; i < n; ++i) lanes[i % kHeaderRows] += values[i];
    for (size_t half = kHeaderRows / 2; half > 0; half /= 2) {
      for (size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    }
    return lanes[0];
  }
};

template <WeightType kType>
struct Codes {
  using Headers = embershard::Headers;
  static constexpr WeightType kWeights = kType;
  static constexpr size_t kColumns = 16;
  static constexpr size_t kBlocksMax = 1;
  struct Sums {
    int32_t lanes[kColumns];
  };

  template <size_t kBlocks, class Group, class Fetch>
  static void Add(const Group& group, size_t first, size_t n, Sums* sums, const Fetch& fetch) {
    *sums = {};
    for (size_t i = 0; i < group.size; ++i) {
      if (i % 2 == 0 && i + 1 < group.size) fetch(i);
      const std::byte* const codes = group.rows[i] + first;
      for (size_t column = 0; column < n; ++column) {
        const std::byte code = kType == WeightType::kInt8
                                   ? codes[column]
                                   : (codes[column / 2] >> (column % 2 * 4)) & std::byte{15};
        sums->lanes[column] += group.multipliers[i] * static_cast<int32_t>(code);
      }
    }
  }
  static size_t ByteOf(size_t column) { return kType == WeightType::kInt8 ? column : column / 2; }
  static void Store(const Sums& sums, float unit, float bias, float* to, size_t n) {
    for (size_t i = 0; i < n && i < kColumns; ++i) {
      to[i] = std::fma(static_cast<float>(sums.lanes[i]), unit, bias);
    }
  }
};

}  // namespace

constinit const BagSumsKernel kScalarBagSums =
    KernelOf<Scalar, Codes<WeightType::kInt8>, Codes<WeightType::kInt4>>("scalar");

}  // namespace embershard
