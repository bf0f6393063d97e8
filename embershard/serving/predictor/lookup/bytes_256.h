// Vectors of 32 bytes for exact_codes.h, and headers of 8 rows at a time. Needs AVX2 and F16C.

#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "lookup/half.h"

namespace embershard {
namespace {

struct Bytes256 {
  static constexpr size_t kLanes = 2;
  using Ints = __m256i;

  // Loads the first n bytes at `at` without reading more. REQUIRES: n is even.
  static Ints Load(const std::byte* at, size_t n) {
    if (n >= 32) return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
    if (n % 4 != 0) {
      std::byte bytes[32] = {};
      __builtin_memcpy(bytes, at, n);
      return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes));
    }
    const Ints begins = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    const Ints end = _mm256_set1_epi32(static_cast<int>(n));
    return _mm256_maskload_epi32(reinterpret_cast<const int*>(at), _mm256_cmpgt_epi32(end, begins));
  }
  static Ints Set16(int16_t value) { return _mm256_set1_epi16(value); }
  static Ints Set32(int32_t value) { return _mm256_set1_epi32(value); }
  static Ints And(Ints a, Ints b) { return _mm256_and_si256(a, b); }
  static Ints ShiftRight4(Ints a) { return _mm256_srli_epi16(a, 4); }
  static Ints ShuffleBytes(Ints a, Ints places) { return _mm256_shuffle_epi8(a, places); }
  static Ints LowBytes(Ints a, Ints b) { return _mm256_unpacklo_epi8(a, b); }
  static Ints HighBytes(Ints a, Ints b) { return _mm256_unpackhi_epi8(a, b); }
  static Ints LowWords(Ints a, Ints b) { return _mm256_unpacklo_epi16(a, b); }
  static Ints HighWords(Ints a, Ints b) { return _mm256_unpackhi_epi16(a, b); }
  static Ints LowInts(Ints a, Ints b) { return _mm256_unpacklo_epi32(a, b); }
  static Ints HighInts(Ints a, Ints b) { return _mm256_unpackhi_epi32(a, b); }
  static Ints MultiplyAddWords(Ints a, Ints b, Ints c) {
    return _mm256_add_epi32(c, _mm256_madd_epi16(a, b));
  }
  static Ints MultiplyAddBytes(Ints a, Ints b, Ints c) {
    return _mm256_add_epi16(c, _mm256_maddubs_epi16(a, b));
  }
  static void TransposeLanes(Ints* v) {
    const Ints low = _mm256_permute2x128_si256(v[0], v[1], 0x20);
    v[1] = _mm256_permute2x128_si256(v[0], v[1], 0x31);
    v[0] = low;
  }
  static void StoreFloats(Ints ints, float unit, float bias, float* to, size_t n) {
    const __m256 values =
        _mm256_fmadd_ps(_mm256_cvtepi32_ps(ints), _mm256_set1_ps(unit), _mm256_set1_ps(bias));
    if (n >= 8) {
      _mm256_storeu_ps(to, values);
    } else {
      _mm256_maskstore_ps(to, First(n), values);
    }
  }
  static Ints First(size_t n) {
    return _mm256_cmpgt_epi32(Set32(static_cast<int>(n)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
};

struct Headers256 {
  static void Read(const std::byte* const* codes, size_t code_offset, uint32_t exponent,
                   int16_t* multipliers, float* biases) {
    const __m256i headers = _mm256_inserti128_si256(
        _mm256_castsi128_si256(Read4(codes, code_offset)), Read4(codes + 4, code_offset), 1);
    const __m256i fractions = _mm256_or_si256(_mm256_and_si256(headers, _mm256_set1_epi32(0x3FF)),
                                              _mm256_set1_epi32(0x400));
    const __m256i shifts = _mm256_sub_epi32(_mm256_srli_epi32(_mm256_slli_epi32(headers, 16), 26),
                                            _mm256_set1_epi32(static_cast<int>(exponent)));
    Store16(multipliers, _mm256_sllv_epi32(fractions, shifts));
    const __m256i fits =
        _mm256_cmpeq_epi32(shifts, _mm256_min_epu32(shifts, _mm256_set1_epi32(kShiftMax)));
    const __m256i high = _mm256_srli_epi32(headers, 16);
    const __m256 values = _mm256_cvtph_ps(Pack16(high));
    const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
    _mm256_storeu_ps(biases, _mm256_blendv_ps(nan, values, _mm256_castsi256_ps(fits)));
  }

  static float Sum(const float* values, size_t n) {
    __m256 sum = _mm256_setzero_ps();
    size_t i = 0;
    for (; i + 8 <= n; i += 8) sum = _mm256_add_ps(sum, _mm256_loadu_ps(values + i));
    if (i < n) {
      const __m256 last = _mm256_loadu_ps(values + i);
      sum = _mm256_add_ps(sum, _mm256_and_ps(last, _mm256_castsi256_ps(Bytes256::First(n - i))));
    }
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
  }

 private:
  static __m128i Read4(const std::byte* const* codes, size_t code_offset) {
    int32_t headers[4];
    for (size_t i = 0; i < 4; ++i) __builtin_memcpy(&headers[i], codes[i] - code_offset, 4);
    return _mm_setr_epi32(headers[0], headers[1], headers[2], headers[3]);
  }
  static __m128i Pack16(__m256i ints) {
    return _mm_packus_epi32(_mm256_castsi256_si128(ints), _mm256_extracti128_si256(ints, 1));
  }
  static void Store16(int16_t* to, __m256i ints) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), Pack16(ints));
  }
};

}  // namespace
}  // namespace embershard
