// Vectors of 16 floats. CMakeLists.txt compiles this file for AVX-512 F.

#if defined(__x86_64__)

#include <immintrin.h>

#include "dense/linear_loop.h"
#include "dense/vector_products_loop.h"

namespace embershard {
namespace {

struct Avx512 {
  static constexpr size_t kLanes = 16;
  static constexpr size_t kRegisters = 4;  // Times kRows, uses 24 of 32 registers.
  using Floats = __m512;

  static Floats Zero() { return _mm512_setzero_ps(); }
  static Floats Set(float value) { return _mm512_set1_ps(value); }
  static Floats Load(const float* from) { return _mm512_loadu_ps(from); }
  static Floats LoadFirst(const float* from, size_t n) {
    return _mm512_maskz_loadu_ps(FirstLanes(n), from);
  }
  static Floats MultiplyAdd(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
  static Floats Add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
  static Floats Rectified(Floats a) { return _mm512_max_ps(Zero(), a); }
  // Does not use the compressing store, which takes a hundred cycles on some processors.
  static void Store(float* to, size_t begin, size_t end, Floats a) {
    const auto lanes = static_cast<__mmask16>(FirstLanes(end) & ~FirstLanes(begin));
    _mm512_mask_storeu_ps(to, FirstLanes(end - begin), _mm512_maskz_compress_ps(lanes, a));
  }
  static void Transpose(__m512 (&r)[kLanes]) {
    __m512 t[kLanes];
    for (size_t i = 0; i < kLanes; i += 2) {
      t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
      t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (size_t i = 0; i < kLanes; i += 4) {
      for (size_t j = 0; j < 2; ++j) {
        const __m512d low = _mm512_castps_pd(t[i + j]);
        const __m512d high = _mm512_castps_pd(t[i + j + 2]);
        r[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
        r[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
      }
    }
    // r[4 * q + c] now has column c + 4 * b of rows 4 * q .. 4 * q + 3 in its quarter b.
    for (size_t c = 0; c < 4; ++c) {
      const __m512 even_low = _mm512_shuffle_f32x4(r[c], r[4 + c], 0x88);  // b = 0, 2
      const __m512 odd_low = _mm512_shuffle_f32x4(r[c], r[4 + c], 0xdd);   // b = 1, 3
      const __m512 even_high = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0x88);
      const __m512 odd_high = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0xdd);
      t[c] = _mm512_shuffle_f32x4(even_low, even_high, 0x88);
      t[8 + c] = _mm512_shuffle_f32x4(even_low, even_high, 0xdd);
      t[4 + c] = _mm512_shuffle_f32x4(odd_low, odd_high, 0x88);
      t[12 + c] = _mm512_shuffle_f32x4(odd_low, odd_high, 0xdd);
    }
    std::copy(t, t + kLanes, r);
  }

 private:
  static __mmask16 FirstLanes(size_t n) { return static_cast<__mmask16>((1U << n) - 1); }
};

}  // namespace

const VectorProducts kAvx512VectorProducts = {PairProducts<Avx512>, CrossProducts<Avx512>,
                                              PackWeights<Avx512>, Linear<Avx512>};

}  // namespace embershard

#endif
