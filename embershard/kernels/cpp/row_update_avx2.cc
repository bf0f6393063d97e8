#include "embershard/kernels/cpp/row_update.h"

#if defined(__AVX2__) && defined(__F16C__)

#include <immintrin.h>

#include "embershard/kernels/cpp/row_update_loop.h"

namespace embershard::kernels {
namespace {

struct F16cHalves {
  static void Load(const std::byte* halves, float* floats) {
    _mm_storeu_ps(floats, _mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(halves))));
  }
  static void Store(const float* floats, std::byte* halves) {
    _mm_storel_epi64(reinterpret_cast<__m128i*>(halves),
                     _mm_cvtps_ph(_mm_loadu_ps(floats), _MM_FROUND_TO_NEAREST_INT));
  }
};

}  // namespace

void UpdateRowsAvx2(const TableRows& table, const Step& step, const float* gradients,
                    std::span<const Occurrence> sorted) {
  UpdateBy<F16cHalves>(table, step, gradients, sorted);
}

}  // namespace embershard::kernels

#endif
