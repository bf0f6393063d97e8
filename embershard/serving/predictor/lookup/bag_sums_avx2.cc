// Vectors of 8 floats. CMakeLists.txt compiles this file for AVX2, FMA and F16C.

#if defined(__x86_64__)
#include <immintrin.h>

#include "lookup/exact_codes.h"
#include "lookup/exact_sums.h"

namespace embershard {
namespace {

struct Avx2 {
  static constexpr size_t kWidth = 8;
  using Floats = __m256;

  static Floats Zero() { return _mm256_setzero_ps(); }
  static Floats Set(float value) { return _mm256_set1_ps(value); }
  static Floats Half(const std::byte* at) {
    int16_t bits;
    __builtin_memcpy(&bits, at, sizeof(bits));
    return _mm256_cvtph_ps(_mm_set1_epi16(bits));
  }

  static Floats Add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
  static Floats Multiply(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
  static Floats MultiplyAdd(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }

  static Floats Int8(const std::byte* at, size_t n) {
    return Codes(n > kHalf ? Load8(at) : Load4(at));
  }
  static Floats Int4(const std::byte* at, size_t n) {
    const __m128i bytes = n > kHalf ? Load4(at) : Load2(at);
    const __m128i low = _mm_set1_epi8(15);
    return Codes(
        _mm_unpacklo_epi8(_mm_and_si128(bytes, low), _mm_and_si128(_mm_srli_epi16(bytes, 4), low)));
  }
  static Floats Fp16(const std::byte* at, size_t n) {
    if (n <= kHalf) return _mm256_cvtph_ps(Load8(at));
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  }
  static Floats Fp32(const std::byte* at, size_t n) {
    const auto* const values = reinterpret_cast<const float*>(at);
    if (n <= kHalf) return _mm256_castps128_ps256(_mm_loadu_ps(values));
    return _mm256_loadu_ps(values);
  }
  static void Store(float* to, size_t n, Floats values) {
    if (n == kWidth) {
      _mm256_storeu_ps(to, values);
    } else if (n == kHalf) {
      _mm_storeu_ps(to, _mm256_castps256_ps128(values));
    } else {
      const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
      const __m256i end = _mm256_set1_epi32(static_cast<int>(n));
      _mm256_maskstore_ps(to, _mm256_cmpgt_epi32(end, lanes), values);
    }
  }

 private:
  static constexpr size_t kHalf = kWidth / 2;

  static __m128i Load8(const std::byte* at) {
    return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at));
  }
  static __m128i Load4(const std::byte* at) {
    int32_t bytes;
    __builtin_memcpy(&bytes, at, sizeof(bytes));
    return _mm_cvtsi32_si128(bytes);
  }
  static __m128i Load2(const std::byte* at) {
    uint16_t bytes;
    __builtin_memcpy(&bytes, at, sizeof(bytes));
    return _mm_cvtsi32_si128(bytes);
  }
  static Floats Codes(__m128i codes) { return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(codes)); }
};

}  // namespace

constinit const BagSumsKernel kAvx2BagSums =
    KernelOf<Avx2, Int8Codes<Bytes256>, Int4Codes<Bytes256>>("avx2");

}  // namespace embershard
#endif
