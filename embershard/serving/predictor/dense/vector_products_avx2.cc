// Vectors of 8 floats. CMakeLists.txt compiles this file for AVX2 and FMA.

#if defined(__x86_64__)

#include <immintrin.h>

#include "dense/linear_loop.h"
#include "dense/vector_products_loop.h"

namespace embershard {
namespace {

struct Avx2 {
  static constexpr size_t kLanes = 8;
  static constexpr size_t kRegisters = 2;  // Times kRows, uses 12 of 16 registers.
  using Floats = __m256;

  static Floats Zero() { return _mm256_setzero_ps(); }
  static Floats Set(float value) { return _mm256_set1_ps(value); }
  static Floats Load(const float* from) { return _mm256_loadu_ps(from); }
  static Floats LoadFirst(const float* from, size_t n) {
    return n >= kLanes ? Load(from) : _mm256_maskload_ps(from, FirstLanes(n));
  }
  static Floats MultiplyAdd(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
  static Floats Add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
  static Floats Rectified(Floats a) { return _mm256_max_ps(Zero(), a); }
  static void Store(float* to, size_t begin, size_t end, Floats a) {
    if (end - begin == kLanes) return _mm256_storeu_ps(to, a);
    const __m256i places = _mm256_add_epi32(Lanes(), _mm256_set1_epi32(static_cast<int>(begin)));
    _mm256_maskstore_ps(to, FirstLanes(end - begin), _mm256_permutevar8x32_ps(a, places));
  }
  static void Transpose(Floats (&r)[kLanes]) {
    Floats pairs[kLanes];
    for (size_t i = 0; i < kLanes; i += 2) {
      pairs[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
      pairs[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    // fours[i][c] has column c of rows 4 * i .. 4 * i + 3 in its low half, column c + 4 in its
    // high.
    Floats fours[2][4];
    for (size_t i = 0; i < 2; ++i) {
      for (size_t j = 0; j < 2; ++j) {
        const Floats low = pairs[4 * i + j];
        const Floats high = pairs[4 * i + j + 2];
        fours[i][2 * j] = _mm256_shuffle_ps(low, high, 0x44);
        fours[i][2 * j + 1] = _mm256_shuffle_ps(low, high, 0xEE);
      }
    }
    for (size_t c = 0; c < 4; ++c) {
      r[c] = _mm256_permute2f128_ps(fours[0][c], fours[1][c], 0x20);
      r[c + 4] = _mm256_permute2f128_ps(fours[0][c], fours[1][c], 0x31);
    }
  }

 private:
  static __m256i Lanes() { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }
  static __m256i FirstLanes(size_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), Lanes());
  }
};

}  // namespace

const VectorProducts kAvx2VectorProducts = {PairProducts<Avx2>, CrossProducts<Avx2>,
                                            PackWeights<Avx2>, Linear<Avx2>};

}  // namespace embershard

#endif
