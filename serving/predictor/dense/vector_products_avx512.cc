#include "dense/vector_products.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <vector>

// One side of a product is turned into a panel: value k of 16 vectors beside each other, so that
// one instruction adds to 16 products at once, and none must be summed across a register.
//
//   vectors [count, dim]                panel [dim, count rounded up to 16], zeros behind count
//   a0 a1 a2 ...                        a0 b0 c0 ...
//   b0 b1 b2 ...            ->          a1 b1 c1 ...

namespace embershard {
namespace {

constexpr size_t kLanes = 16;
constexpr size_t kRows = 6;       // Products of so many vectors at once,
constexpr size_t kRegisters = 4;  // with so many times 16: 24 registers of 32.

size_t RoundedUp(size_t count) { return (count + kLanes - 1) / kLanes * kLanes; }

__mmask16 FirstLanes(size_t count) {
  return static_cast<__mmask16>(count >= kLanes ? 0xffff : (1u << count) - 1);
}

// 16 rows of 16 floats become columns.
void Transpose(__m512 (&r)[kLanes]) {
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

void MakePanel(const float* vectors, size_t count, size_t dim, float* panel) {
  const size_t stride = RoundedUp(count);
  for (size_t first = 0; first < count; first += kLanes) {
    for (size_t k = 0; k < dim; k += kLanes) {
      const __mmask16 values = FirstLanes(dim - k);
      __m512 rows[kLanes];
      for (size_t i = 0; i < kLanes; ++i) {
        rows[i] = first + i < count ? _mm512_maskz_loadu_ps(values, vectors + (first + i) * dim + k)
                                    : _mm512_setzero_ps();
      }
      Transpose(rows);
      const size_t used = std::min(kLanes, dim - k);
      for (size_t i = 0; i < used; ++i) {
        _mm512_storeu_ps(panel + (k + i) * stride + first, rows[i]);
      }
    }
  }
}

// sums[i][j]: vectors[i] times each of 16 of the panel's from its column j * 16 on.
template <size_t registers>
void Multiply(const float* const (&vectors)[kRows], size_t dim, const float* panel, size_t stride,
              __m512 (&sums)[kRows][kRegisters]) {
  __m512 kept[kRows][registers];
  for (size_t i = 0; i < kRows; ++i) {
    for (size_t j = 0; j < registers; ++j) kept[i][j] = _mm512_setzero_ps();
  }
  for (size_t k = 0; k < dim; ++k) {
    __m512 columns[registers];
    for (size_t j = 0; j < registers; ++j) {
      columns[j] = _mm512_loadu_ps(panel + k * stride + j * kLanes);
    }
    for (size_t i = 0; i < kRows; ++i) {
      const __m512 value = _mm512_set1_ps(vectors[i][k]);
      for (size_t j = 0; j < registers; ++j) {
        kept[i][j] = _mm512_fmadd_ps(value, columns[j], kept[i][j]);
      }
    }
  }
  for (size_t i = 0; i < kRows; ++i) {
    for (size_t j = 0; j < registers; ++j) sums[i][j] = kept[i][j];
  }
}

void Multiply(size_t registers, const float* const (&vectors)[kRows], size_t dim,
              const float* panel, size_t stride, __m512 (&sums)[kRows][kRegisters]) {
  switch (registers) {
    case 1:
      return Multiply<1>(vectors, dim, panel, stride, sums);
    case 2:
      return Multiply<2>(vectors, dim, panel, stride, sums);
    case 3:
      return Multiply<3>(vectors, dim, panel, stride, sums);
    default:
      return Multiply<4>(vectors, dim, panel, stride, sums);
  }
}

// The rows of one step; behind the last vector they are it again, and not written.
void RowsFrom(const float* vectors, size_t first, size_t count, size_t dim,
              const float* (&rows)[kRows]) {
  for (size_t i = 0; i < kRows; ++i) rows[i] = vectors + std::min(first + i, count - 1) * dim;
}

// Calls write(row, column, 16 sums) for vectors of `count` with those of a panel of
// `panel_count`, from the column that column_from(first row) says on.
template <class ColumnFrom, class Write>
void ForEachSum(const float* vectors, size_t count, size_t dim, const float* panel,
                size_t panel_count, ColumnFrom column_from, Write write) {
  const size_t stride = RoundedUp(panel_count);
  for (size_t first = 0; first < count; first += kRows) {
    const float* rows[kRows];
    RowsFrom(vectors, first, count, dim, rows);
    for (size_t column = column_from(first); column < stride; column += kRegisters * kLanes) {
      const size_t registers = std::min(kRegisters, (stride - column) / kLanes);
      __m512 sums[kRows][kRegisters];
      Multiply(registers, rows, dim, panel + column, stride, sums);
      for (size_t i = 0; i < kRows && first + i < count; ++i) {
        for (size_t j = 0; j < registers; ++j) write(first + i, column + j * kLanes, sums[i][j]);
      }
    }
  }
}

float* PanelOfThread(size_t floats) {
  thread_local std::vector<float> panel;
  if (panel.size() < floats) panel.resize(floats);
  return panel.data();
}

}  // namespace

bool HasVectorProducts() { return __builtin_cpu_supports("avx512f") != 0; }

void PairProducts(const PairProductsCall& call) {
  const size_t count = call.count;
  const size_t pairs = count * (count - 1) / 2;
  float* const panel = PanelOfThread(RoundedUp(count) * call.dim);
  for (size_t example = 0; example < call.examples; ++example) {
    const float* const vectors = call.vectors + example * count * call.dim;
    float* const products = call.products + example * pairs;
    MakePanel(vectors, count, call.dim, panel);
    const auto write = [&](size_t row, size_t column, __m512 sums) {
      // Lanes of columns row + 1 .. count - 1, which lie side by side.
      const size_t from = std::max(row + 1, column);
      if (from >= std::min(count, column + kLanes)) return;
      const auto lanes =
          static_cast<__mmask16>(FirstLanes(count - column) & ~FirstLanes(from - column));
      const size_t before = row * count - row * (row + 1) / 2;  // Pairs of earlier rows.
      // Not the store that compresses: some processors take a hundred cycles for it.
      _mm512_mask_storeu_ps(products + before + (from - row - 1),
                            FirstLanes(std::min(count, column + kLanes) - from),
                            _mm512_maskz_compress_ps(lanes, sums));
    };
    ForEachSum(
        vectors, count, call.dim, panel, count,
        [](size_t row) { return (row + 1) / kLanes * kLanes; }, write);
  }
}

void CrossProducts(const CrossProductsCall& call) {
  const size_t others = call.other_count;
  float* const panel = PanelOfThread(RoundedUp(others) * call.dim);
  for (size_t example = 0; example < call.examples; ++example) {
    const int64_t row_of = call.row_of[example];
    if (example == 0 || row_of != call.row_of[example - 1]) {
      MakePanel(call.others + static_cast<size_t>(row_of) * others * call.dim, others, call.dim,
                panel);
    }
    float* const products = call.products + example * call.count * others;
    ForEachSum(
        call.vectors + example * call.count * call.dim, call.count, call.dim, panel, others,
        [](size_t) { return size_t{0}; },
        [&](size_t row, size_t column, __m512 sums) {
          _mm512_mask_storeu_ps(products + row * others + column, FirstLanes(others - column),
                                sums);
        });
  }
}

}  // namespace embershard

#endif  // defined(__x86_64__)
