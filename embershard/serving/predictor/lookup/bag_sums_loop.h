// The loop of bag_sums.h, generic over the vector width. Only the file of each width includes this,
// because it is compiled for that file's processors.
//
// `V` defines a vector of kWidth floats, in an unnamed namespace of that file:
//   Floats                            a vector
//   Zero(), Half(p), Set(x)           zeros; copies of the fp16 at p; copies of a float
//   Add(a, b), Multiply(a, b), MultiplyAdd(a, b, c)          a * b + c, rounded once
//   Int8(p, n), Int4(p, n), Fp16(p, n), Fp32(p, n)  the first n <= kWidth columns at p, as
//                                     floats; StoredColumns(n) of them may be read
//   Store(p, n, a)                    writes the first n of a
// For whole vectors, n is the constant kWidth.

#pragma once

#include <cstddef>
#include <cstdint>

#include "lookup/bag_sums.h"
#include "lookup/prefetch.h"
#include "package/row_layout.h"

namespace embershard {
namespace {

// Converts a row's codes to values, n at a time, with the scale and bias from its first bytes.
template <class V, WeightType kType>
struct Row {
  static constexpr bool kQuantized = kType == WeightType::kInt8 || kType == WeightType::kInt4;

  explicit Row(const std::byte* row)
      : scale(kQuantized ? V::Half(row) : V::Zero()),
        bias(kQuantized ? V::Half(row + 2) : V::Zero()) {}
  typename V::Floats Values(const std::byte* at, size_t n) const {
    if constexpr (kType == WeightType::kFp16) return V::Fp16(at, n);
    if constexpr (kType == WeightType::kFp32) return V::Fp32(at, n);
    return V::MultiplyAdd(scale, kType == WeightType::kInt8 ? V::Int8(at, n) : V::Int4(at, n),
                          bias);
  }

  const typename V::Floats scale;
  const typename V::Floats bias;
};

// A vector has kWidth columns, or tail_columns with kTail.
template <class V, WeightType kType, size_t kVectors, bool kWeighted, bool kTail>
void SumBlock(const BagSumsCall& call, size_t first, size_t tail_columns) {
  const size_t n = kTail ? tail_columns : V::kWidth;
  const std::byte* const table = call.table;
  const size_t row_bytes = call.row_bytes;
  const int64_t* const rows = call.rows;
  const int64_t* const offsets = call.offsets;
  const int64_t* const mean_offsets = call.mean_offsets;
  const float* const weights = call.weights;
  constexpr size_t kVectorBytes = ColumnByte(kType, V::kWidth) - ColumnByte(kType, 0);
  const size_t begin_byte = call.first_column == 0 ? 0 : ColumnByte(kType, call.first_column);
  const size_t end_byte = ColumnByte(kType, call.first_column + call.columns);
  const size_t bags = call.bags;
  const size_t stride = call.stride;
  const int64_t ahead_rows = call.rows_ahead;  // These may belong to later bags.
  const int64_t far_rows = ahead_rows + call.rows_far;
  const int64_t last = offsets[bags + call.later_bags];
  const int64_t prefetched = first == 0 ? last - ahead_rows : INT64_MIN;
  const int64_t prefetched_far = first == 0 && call.rows_far > 0 ? last - far_rows : INT64_MIN;
  const std::byte* const block = table + ColumnByte(kType, call.first_column + first);

  float* sums = call.sums + first;
  int64_t i = offsets[0];
  for (size_t bag = 0; bag < bags; ++bag, sums += stride) {
    typename V::Floats sum[kVectors];
    for (size_t v = 0; v < kVectors; ++v) sum[v] = V::Zero();
    for (const int64_t end = offsets[bag + 1]; i < end; ++i) {
      if (i < prefetched) {
        const std::byte* ahead = table + static_cast<size_t>(rows[i + ahead_rows]) * row_bytes;
        Prefetch(ahead + begin_byte, ahead + end_byte);
      }
      if (i < prefetched_far) {
        const std::byte* far = table + static_cast<size_t>(rows[i + far_rows]) * row_bytes;
        Prefetch<kSecondCache>(far + begin_byte, far + end_byte);
      }
      const size_t offset = static_cast<size_t>(rows[i]) * row_bytes;
      const Row<V, kType> row(table + offset);
      const std::byte* at = block + offset;
      const auto weight = kWeighted ? V::Set(weights[i]) : V::Zero();
      for (size_t v = 0; v < kVectors; ++v) {
        const auto values = row.Values(at + v * kVectorBytes, n);
        sum[v] = kWeighted ? V::MultiplyAdd(weight, values, sum[v]) : V::Add(sum[v], values);
      }
    }
    if (mean_offsets != nullptr) {
      const int64_t length = mean_offsets[bag + 1] - mean_offsets[bag];
      const auto factor = V::Set(length > 1 ? 1.0F / static_cast<float>(length) : 1.0F);
      for (size_t v = 0; v < kVectors; ++v) sum[v] = V::Multiply(sum[v], factor);
    }
    for (size_t v = 0; v < kVectors; ++v) {
      V::Store(sums + v * V::kWidth, n, sum[v]);
    }
  }
}

// `vectors` is one of 1 .. kVectors.
template <class V, WeightType kType, bool kWeighted, size_t kVectors>
void SumBlockOf(size_t vectors, const BagSumsCall& call, size_t first) {
  if (vectors == kVectors) {
    SumBlock<V, kType, kVectors, kWeighted, false>(call, first, V::kWidth);
  } else if constexpr (kVectors > 1) {
    SumBlockOf<V, kType, kWeighted, kVectors - 1>(vectors, call, first);
  }
}

// The sums of up to 8 vectors fit into registers. Columns that do not fill a vector come last.
template <class V, WeightType kType, bool kWeighted>
void SumColumns(const BagSumsCall& call) {
  constexpr size_t kVectorsMax = 8;
  size_t first = 0;
  while (call.columns - first >= V::kWidth) {
    const size_t vectors = (call.columns - first) / V::kWidth;
    const size_t summed = vectors < kVectorsMax ? vectors : kVectorsMax;
    SumBlockOf<V, kType, kWeighted, kVectorsMax>(summed, call, first);
    first += summed * V::kWidth;
  }
  if (first < call.columns) {
    SumBlock<V, kType, 1, kWeighted, true>(call, first, call.columns - first);
  }
}

template <class V, WeightType kType>
void SumBags(const BagSumsCall& call) {
  if (call.weights != nullptr) {
    SumColumns<V, kType, true>(call);
  } else {
    SumColumns<V, kType, false>(call);
  }
}

// See BagSumsKernel. Collects sign bits without a branch, so that compilers vectorize the loop.
inline bool AnyOutside(const int64_t* rows, size_t size, int64_t begin, int64_t end) {
  const auto first = static_cast<uint64_t>(begin);
  const auto last = static_cast<uint64_t>(end - 1);
  uint64_t outside = 0;
  for (size_t i = 0; i < size; ++i) {
    const auto bits = static_cast<uint64_t>(rows[i]);
    outside |= (bits - first) | (last - bits);
  }
  return (outside >> 63) != 0;
}

}  // namespace
}  // namespace embershard
