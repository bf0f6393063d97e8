// The loops of vector_products.h over vectors of some width. Included by one file a width, and
// nothing else: it is compiled for that file's processors.
//
// One side of a product is turned into a panel: value k of kLanes vectors beside each other, so
// that one instruction adds to kLanes products at once, and none must be summed across a register.
//
//   vectors [count, dim]                panel [dim, count rounded up to kLanes], zeros behind count
//   a0 a1 a2 ...                        a0 b0 c0 ...
//   b0 b1 b2 ...            ->          a1 b1 c1 ...
//
// `V` says what a vector is: kLanes floats, of which kRegisters at a time are summed.
//   Store(to, begin, end, a)          writes lanes begin .. end - 1 of `a` at `to`
//   LoadFirst(from, n)                the first n at `from`, zeros behind them
//   Transpose(rows)                   kLanes vectors become columns
//   Rectified(a)                      the larger of 0 and a; NaN stays NaN

#ifndef EMBERSHARD_DENSE_VECTOR_PRODUCTS_LOOP_H_
#define EMBERSHARD_DENSE_VECTOR_PRODUCTS_LOOP_H_

#include <algorithm>
#include <vector>

#include "dense/vector_products.h"

namespace embershard {
namespace {

constexpr size_t kRows = 6;          // Products of so many vectors at once.
constexpr size_t kPrefetched = 512;  // Floats of a panel ahead of those that are multiplied.
constexpr size_t kLine = 16;         // Floats of a cache line.

struct Vectors {
  const float* values = nullptr;
  size_t count = 0;
  size_t stride = 0;  // Floats from one to the next.
};

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

// Calls write(i, j, sums) for the first `used` vectors i: vectors[i] times each of kLanes
// of the panel's from its column j * kLanes on.
template <class V, size_t registers, class Write>
void Multiply(const float* const (&vectors)[kRows], size_t used, size_t dim, const float* panel,
              size_t stride, Write write) {
  typename V::Floats sums[kRows][registers];
  for (size_t i = 0; i < kRows; ++i) {
    for (size_t j = 0; j < registers; ++j) sums[i][j] = V::Zero();
  }
  for (size_t k = 0; k < dim; ++k) {
    typename V::Floats columns[registers];
    for (size_t j = 0; j < registers; ++j) {
      columns[j] = V::Load(panel + k * stride + j * V::kLanes);
    }
    for (size_t j = 0; j < registers * V::kLanes; j += kLine) {
      __builtin_prefetch(panel + k * stride + kPrefetched + j);
    }
    for (size_t i = 0; i < kRows; ++i) {
      const auto value = V::Set(vectors[i][k]);
      for (size_t j = 0; j < registers; ++j) {
        sums[i][j] = V::MultiplyAdd(value, columns[j], sums[i][j]);
      }
    }
  }
  for (size_t i = 0; i < kRows; ++i) {
    if (i == used) return;
    for (size_t j = 0; j < registers; ++j) write(i, j, sums[i][j]);
  }
}

template <class V, class Write>
void Multiply(size_t registers, const float* const (&vectors)[kRows], size_t used, size_t dim,
              const float* panel, size_t stride, Write write) {
  if constexpr (V::kRegisters > 2) {
    if (registers == 4) return Multiply<V, 4>(vectors, used, dim, panel, stride, write);
    if (registers == 3) return Multiply<V, 3>(vectors, used, dim, panel, stride, write);
  }
  if (registers == 2) return Multiply<V, 2>(vectors, used, dim, panel, stride, write);
  Multiply<V, 1>(vectors, used, dim, panel, stride, write);
}

// The rows of one step; behind the last vector they are it again, and not written.
void RowsFrom(const Vectors& vectors, size_t first, const float* (&rows)[kRows]) {
  for (size_t i = 0; i < kRows; ++i) {
    rows[i] = vectors.values + std::min(first + i, vectors.count - 1) * vectors.stride;
  }
}

// Calls write(row, column, kLanes sums) for the first `dim` values of vectors with those of a
// panel of `panel_count`, from the column that column_from(first row) says on.
template <class V, class ColumnFrom, class Write>
void ForEachSum(const Vectors& vectors, size_t dim, const float* panel, size_t panel_count,
                ColumnFrom column_from, Write write) {
  const size_t stride = RoundedUp<V>(panel_count);
  for (size_t first = 0; first < vectors.count; first += kRows) {
    const float* rows[kRows];
    RowsFrom(vectors, first, rows);
    for (size_t column = column_from(first); column < stride; column += V::kRegisters * V::kLanes) {
      const size_t registers = std::min(V::kRegisters, (stride - column) / V::kLanes);
      Multiply<V>(registers, rows, std::min(kRows, vectors.count - first), dim, panel + column,
                  stride, [&](size_t i, size_t j, typename V::Floats sums) {
                    write(first + i, column + j * V::kLanes, sums);
                  });
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
      // Lanes of columns row + 1 .. count - 1, which lie side by side.
      const size_t from = std::max(row + 1, column);
      const size_t to = std::min(count, column + V::kLanes);
      if (from >= to) return;
      const size_t before = row * count - row * (row + 1) / 2;  // Pairs of earlier rows.
      V::Store(products + before + (from - row - 1), from - column, to - column, sums);
    };
    ForEachSum<V>(
        {vectors, count, call.dim}, call.dim, panel, count,
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
        {call.vectors + example * call.count * call.dim, call.count, call.dim}, call.dim, panel,
        others, [](size_t) { return size_t{0}; },
        [&](size_t row, size_t column, typename V::Floats sums) {
          V::Store(products + row * others + column, 0, std::min(V::kLanes, others - column), sums);
        });
  }
}

template <class V>
constexpr size_t kPanelOutputs = V::kRegisters * V::kLanes;

template <class V>
void PackWeights(const float* weights, size_t outputs, size_t dim, float* packed) {
  for (size_t first = 0; first < outputs; first += kPanelOutputs<V>) {
    MakePanel<V>(weights + first * dim, std::min(kPanelOutputs<V>, outputs - first), dim,
                 packed + first * dim);
  }
}

template <class V>
void Linear(const LinearCall& call) {
  static_assert(kPackedOutputs % kPanelOutputs<V> == 0);
  for (size_t first = 0; first < call.outputs; first += kPanelOutputs<V>) {
    const size_t outputs = std::min(kPanelOutputs<V>, call.outputs - first);
    const float* const panel = call.packed + first * call.dim;
    for (size_t k = 0; k < call.dim; k += kSummedProducts) {
      const size_t length = std::min(kSummedProducts, call.dim - k);
      const bool last = k + length == call.dim;
      const auto write = [&](size_t row, size_t column, typename V::Floats sums) {
        const size_t lanes = std::min(V::kLanes, outputs - column);
        float* const to = call.products + row * call.stride + first + column;
        if (k > 0) sums = V::Add(V::LoadFirst(to, lanes), sums);
        if (last && call.bias != nullptr) {
          sums = V::Add(sums, V::LoadFirst(call.bias + first + column, lanes));
        }
        if (last && call.relu) sums = V::Rectified(sums);
        V::Store(to, 0, lanes, sums);
      };
      ForEachSum<V>(
          {call.vectors + k, call.count, call.dim}, length, panel + k * RoundedUp<V>(outputs),
          outputs, [](size_t) { return size_t{0}; }, write);
    }
  }
}

}  // namespace
}  // namespace embershard

#endif  // EMBERSHARD_DENSE_VECTOR_PRODUCTS_LOOP_H_
