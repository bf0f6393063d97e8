// The loops of vector_products.h, generic over the vector width. Only the file of each width
// includes this and linear_loop.h, because they are compiled for that file's processors.
//
// One side of a product is transposed into a panel, where value k of kLanes vectors is adjacent.
// Then one instruction adds to kLanes products, and no register must be summed across its lanes.
//
//   vectors [count, dim]                panel [dim, count rounded up to kLanes], padded with zeros
//   a0 a1 a2 ...                        a0 b0 c0 ...
//   b0 b1 b2 ...            ->          a1 b1 c1 ...
//
// `V` defines a vector of kLanes floats. kRegisters vectors are summed at a time.
//   Store(to, begin, end, a)          writes lanes begin .. end - 1 of `a` to `to`
//   LoadFirst(from, n)                loads the first n floats at `from`, padded with zeros
//   Transpose(rows)                   turns kLanes vectors from rows into columns
//   Rectified(a)                      the larger of 0 and a; NaN stays NaN

#pragma once

#include <algorithm>
#include <vector>

#include "dense/vector_products.h"

namespace embershard {
namespace {

constexpr size_t kRows = 6;  // Number of vectors that are multiplied with a panel at a time.

template <class V>
size_t RoundedUp(size_t count) {
  return (count + V::kLanes - 1) / V::kLanes * V::kLanes;
}

template <class V>
void MakePanel(const float* vectors, size_t count, size_t dim, float* panel) {
  const size_t stride = RoundedUp<V>(count);
  for (size_t first = 0; first < count; first += V::kLanes) {
    for (size_t k = 0; k < dim; k += V::kLanes) {
      const size_t used = std::min(V::kLanes, dim - k);
      typename V::Floats rows[V::kLanes];
      for (size_t i = 0; i < V::kLanes; ++i) {
        rows[i] =
            first + i < count ? V::LoadFirst(vectors + (first + i) * dim + k, used) : V::Zero();
      }
      V::Transpose(rows);
      for (size_t i = 0; i < used; ++i) {
        V::Store(panel + (k + i) * stride + first, 0, V::kLanes, rows[i]);
      }
    }
  }
}

// sums[i][j] become the products of vectors[i] and kLanes columns of the panel from j * kLanes on.
template <class V, size_t registers>
void Multiply(const float* const (&vectors)[kRows], size_t dim, const float* panel, size_t stride,
              typename V::Floats (&sums)[kRows][V::kRegisters]) {
  typename V::Floats kept[kRows][registers];
  for (size_t i = 0; i < kRows; ++i) {
    for (size_t j = 0; j < registers; ++j) kept[i][j] = V::Zero();
  }
  for (size_t k = 0; k < dim; ++k) {
    typename V::Floats columns[registers];
    for (size_t j = 0; j < registers; ++j) {
      columns[j] = V::Load(panel + k * stride + j * V::kLanes);
    }
    for (size_t i = 0; i < kRows; ++i) {
      const auto value = V::Set(vectors[i][k]);
      for (size_t j = 0; j < registers; ++j) {
        kept[i][j] = V::MultiplyAdd(value, columns[j], kept[i][j]);
      }
    }
  }
  for (size_t i = 0; i < kRows; ++i) {
    for (size_t j = 0; j < registers; ++j) sums[i][j] = kept[i][j];
  }
}

template <class V>
void Multiply(size_t registers, const float* const (&vectors)[kRows], size_t dim,
              const float* panel, size_t stride, typename V::Floats (&sums)[kRows][V::kRegisters]) {
  if constexpr (V::kRegisters > 2) {
    if (registers == 4) return Multiply<V, 4>(vectors, dim, panel, stride, sums);
    if (registers == 3) return Multiply<V, 3>(vectors, dim, panel, stride, sums);
  }
  if (registers == 2) return Multiply<V, 2>(vectors, dim, panel, stride, sums);
  Multiply<V, 1>(vectors, dim, panel, stride, sums);
}

// Repeats the last vector if there are too few; results of repeated rows are not written.
void RowsFrom(const float* vectors, size_t first, size_t count, size_t dim,
              const float* (&rows)[kRows]) {
  for (size_t i = 0; i < kRows; ++i) rows[i] = vectors + std::min(first + i, count - 1) * dim;
}

// Calls write(row, column, kLanes sums) for `count` vectors and the `panel_count` columns of a
// panel. Starts at column column_from(row) for a step whose first row is `row`.
template <class V, class ColumnFrom, class Write>
void ForEachSum(const float* vectors, size_t count, size_t dim, const float* panel,
                size_t panel_count, ColumnFrom column_from, Write write) {
  const size_t stride = RoundedUp<V>(panel_count);
  for (size_t first = 0; first < count; first += kRows) {
    const float* rows[kRows];
    RowsFrom(vectors, first, count, dim, rows);
    for (size_t column = column_from(first); column < stride; column += V::kRegisters * V::kLanes) {
      const size_t registers = std::min(V::kRegisters, (stride - column) / V::kLanes);
      typename V::Floats sums[kRows][V::kRegisters];
      Multiply<V>(registers, rows, dim, panel + column, stride, sums);
      for (size_t i = 0; i < kRows && first + i < count; ++i) {
        for (size_t j = 0; j < registers; ++j) write(first + i, column + j * V::kLanes, sums[i][j]);
      }
    }
  }
}

float* PanelOfThread(size_t floats) {
  thread_local std::vector<float> panel;
  if (panel.size() < floats) panel.resize(floats);
  return panel.data();
}

template <class V>
void PairProducts(const PairProductsCall& call) {
  const size_t count = call.count;
  const size_t pairs = count * (count - 1) / 2;
  float* const panel = PanelOfThread(RoundedUp<V>(count) * call.dim);
  for (size_t example = 0; example < call.examples; ++example) {
    const float* const vectors = call.vectors + example * count * call.dim;
    float* const products = call.products + example * pairs;
    MakePanel<V>(vectors, count, call.dim, panel);
    const auto write = [&](size_t row, size_t column, typename V::Floats sums) {
      // Columns row + 1 .. count - 1 are adjacent in the products.
      const size_t from = std::max(row + 1, column);
      const size_t to = std::min(count, column + V::kLanes);
      if (from >= to) return;
      const size_t before = row * count - row * (row + 1) / 2;  // Pairs of earlier rows.
      V::Store(products + before + (from - row - 1), from - column, to - column, sums);
    };
    ForEachSum<V>(
        vectors, count, call.dim, panel, count,
        [](size_t row) { return (row + 1) / V::kLanes * V::kLanes; }, write);
  }
}

template <class V>
void CrossProducts(const CrossProductsCall& call) {
  const size_t others = call.other_count;
  float* const panel = PanelOfThread(RoundedUp<V>(others) * call.dim);
  for (size_t example = 0; example < call.examples; ++example) {
    const int64_t row_of = call.row_of[example];
    if (example == 0 || row_of != call.row_of[example - 1]) {
      MakePanel<V>(call.others + static_cast<size_t>(row_of) * others * call.dim, others, call.dim,
                   panel);
    }
    float* const products = call.products + example * call.count * others;
    ForEachSum<V>(
        call.vectors + example * call.count * call.dim, call.count, call.dim, panel, others,
        [](size_t) { return size_t{0}; },
        [&](size_t row, size_t column, typename V::Floats sums) {
          V::Store(products + row * others + column, 0, std::min(V::kLanes, others - column), sums);
        });
  }
}

}  // namespace
}  // namespace embershard
