// Vectors of 16 floats. CMakeLists.txt has this file compiled for AVX-512 (F, BW, VL).

#if defined(__x86_64__)
#include <immintrin.h>

#include "lookup/bag_sums_loop.h"
#include "lookup/exact_codes.h"
#include "lookup/exact_sums.h"
#include "lookup/rows_outside.h"

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

struct Bytes512 {
  static constexpr size_t kLanes = 4;
  using Ints = __m512i;

  static Ints Load(const std::byte* at, size_t n) {
    if (n >= 64) return _mm512_loadu_si512(at);
    return _mm512_maskz_loadu_epi8((uint64_t{1} << n) - 1, at);
  }
  static Ints Set16(int16_t value) { return _mm512_set1_epi16(value); }
  static Ints Set32(int32_t value) { return _mm512_set1_epi32(value); }
  static Ints And(Ints a, Ints b) { return _mm512_and_si512(a, b); }
  static Ints ShiftRight4(Ints a) { return _mm512_srli_epi16(a, 4); }
  static Ints ShuffleBytes(Ints a, Ints places) { return _mm512_shuffle_epi8(a, places); }
  static Ints LowBytes(Ints a, Ints b) { return _mm512_unpacklo_epi8(a, b); }
  static Ints HighBytes(Ints a, Ints b) { return _mm512_unpackhi_epi8(a, b); }
  static Ints LowWords(Ints a, Ints b) { return _mm512_unpacklo_epi16(a, b); }
  static Ints HighWords(Ints a, Ints b) { return _mm512_unpackhi_epi16(a, b); }
  static Ints LowInts(Ints a, Ints b) { return _mm512_unpacklo_epi32(a, b); }
  static Ints HighInts(Ints a, Ints b) { return _mm512_unpackhi_epi32(a, b); }
  static Ints MultiplyAddWords(Ints a, Ints b, Ints c) {
    return _mm512_add_epi32(c, _mm512_madd_epi16(a, b));
  }
  static Ints MultiplyAddBytes(Ints a, Ints b, Ints c) {
    return _mm512_add_epi16(c, _mm512_maddubs_epi16(a, b));
  }
  static void TransposeLanes(Ints* v) {
    const Ints low01 = _mm512_shuffle_i32x4(v[0], v[1], 0x44);
    const Ints high01 = _mm512_shuffle_i32x4(v[0], v[1], 0xEE);
    const Ints low23 = _mm512_shuffle_i32x4(v[2], v[3], 0x44);
    const Ints high23 = _mm512_shuffle_i32x4(v[2], v[3], 0xEE);
    v[0] = _mm512_shuffle_i32x4(low01, low23, 0x88);
    v[1] = _mm512_shuffle_i32x4(low01, low23, 0xDD);
    v[2] = _mm512_shuffle_i32x4(high01, high23, 0x88);
    v[3] = _mm512_shuffle_i32x4(high01, high23, 0xDD);
  }
  static void StoreFloats(Ints ints, float unit, float bias, float* to, size_t n) {
    const __m512 values =
        _mm512_fmadd_ps(_mm512_cvtepi32_ps(ints), _mm512_set1_ps(unit), _mm512_set1_ps(bias));
    Avx512::Store(to, n < 16 ? n : 16, values);
  }
};

// Rows of up to 32 bytes fill vectors of 32, of which these processors do more at once.
void SumInt8(const BagSumsCall& call) {
  if (call.columns <= 32) return SumExactly<Int8Codes<Bytes256>>(call, SumBags<Avx512, Int8Row>);
  SumExactly<Int8Codes<Bytes512>>(call, SumBags<Avx512, Int8Row>);
}
void SumInt4(const BagSumsCall& call) {
  if (call.columns <= 64) return SumExactly<Int4Codes<Bytes256>>(call, SumBags<Avx512, Int4Row>);
  SumExactly<Int4Codes<Bytes512>>(call, SumBags<Avx512, Int4Row>);
}

}  // namespace

const BagSumsKernel kAvx512BagSums = {
    "avx512", SumInt8, SumInt4, SumBags<Avx512, Fp16Row>, SumBags<Avx512, Fp32Row>, AnyOutside};

}  // namespace embershard
#endif
