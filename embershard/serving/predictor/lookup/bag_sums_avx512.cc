// Vectors of 16 floats. CMakeLists.txt compiles this file for AVX-512 (F, BW, VL), and
// bag_sums_vnni.cc, which includes it, also for VNNI.

#if defined(__x86_64__)
#include <immintrin.h>

#include "lookup/bytes_512.h"
#include "lookup/exact_codes.h"
#include "lookup/exact_sums.h"

namespace embershard {
namespace {

struct Avx512 {
  static constexpr size_t kWidth = 16;
  using Floats = __m512;

  static Floats Zero() { return _mm512_setzero_ps(); }
  static Floats Set(float value) { return _mm512_set1_ps(value); }
  static Floats Half(const std::byte* at) {
    int16_t bits;
    __builtin_memcpy(&bits, at, sizeof(bits));
    return _mm512_cvtph_ps(_mm256_set1_epi16(bits));
  }

  static Floats Add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
  static Floats Multiply(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  static Floats MultiplyAdd(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }

  static Floats Int8(const std::byte* at, size_t n) { return Codes(Load16(at, n)); }
  static Floats Int4(const std::byte* at, size_t n) {
    const __m128i bytes = Load16(at, (n + 1) / 2);
    const __m128i low = _mm_set1_epi8(15);
    return Codes(
        _mm_unpacklo_epi8(_mm_and_si128(bytes, low), _mm_and_si128(_mm_srli_epi16(bytes, 4), low)));
  }
  static Floats Fp16(const std::byte* at, size_t n) {
    const auto mask = static_cast<__mmask16>(Ones(n));
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, at));
  }
  static Floats Fp32(const std::byte* at, size_t n) {
    return _mm512_maskz_loadu_ps(static_cast<__mmask16>(Ones(n)), at);
  }
  static void Store(float* to, size_t n, Floats values) {
    _mm512_mask_storeu_ps(to, static_cast<__mmask16>(Ones(n)), values);
  }

 private:
  static uint32_t Ones(size_t n) { return (uint32_t{1} << n) - 1; }
  static __m128i Load16(const std::byte* at, size_t bytes) {
    return _mm_maskz_loadu_epi8(static_cast<__mmask16>(Ones(bytes)), at);
  }
  static Floats Codes(__m128i codes) { return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(codes)); }
};

// Rows of up to 32 bytes use vectors of 32 bytes, of which these processors run more in parallel.
constexpr auto KernelNamed = KernelOf<Avx512, Int8Codes<Bytes512>, Int4Codes<Bytes512>,
                                      Int8Codes<Bytes256>, Int4Codes<Bytes256>>;

}  // namespace

#if defined(EMBERSHARD_VNNI)
constinit const BagSumsKernel kVnniBagSums = KernelNamed("avx512_vnni");
#else
constinit const BagSumsKernel kAvx512BagSums = KernelNamed("avx512");
#endif

}  // namespace embershard
#endif
