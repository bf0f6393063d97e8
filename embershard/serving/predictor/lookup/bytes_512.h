// Vectors of 64 bytes for exact_codes.h. Needs AVX-512 (F and BW). Uses the multiply-add of VNNI if
// the file is compiled for it.

#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace embershard {
namespace {

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
#if defined(__AVX512VNNI__)
    return _mm512_dpwssd_epi32(c, a, b);
#else
    return _mm512_add_epi32(c, _mm512_madd_epi16(a, b));
#endif
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
    _mm512_mask_storeu_ps(to, static_cast<__mmask16>(n < 16 ? (1U << n) - 1 : 0xFFFFU), values);
  }
};

}  // namespace
}  // namespace embershard
