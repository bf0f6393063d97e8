// Where the columns of a stored row lie (docs/format.md).
//
// With internal linkage: files that are compiled for newer processors include this, and nothing
// of what they make of it may be linked into the others.

#pragma once

#include <cstddef>

namespace embershard {

enum class WeightType { kInt8, kInt4, kFp16, kFp32 };

constexpr size_t kScaleAndBiasBytes = 4;  // fp16 each, before the codes of a quantized row.

// A stored row has its columns rounded up to a multiple of this.
constexpr size_t kColumnMultiple = 4;

static constexpr size_t StoredColumns(size_t dim) {
  return (dim + kColumnMultiple - 1) / kColumnMultiple * kColumnMultiple;
}

// The byte of a row behind its first `columns` columns, where the next one begins if they are
// even; the row's size, where they are its stored columns.
static constexpr size_t ColumnByte(WeightType weights, size_t columns) {
  switch (weights) {
    case WeightType::kInt8:
      return kScaleAndBiasBytes + columns;
    case WeightType::kInt4:
      return kScaleAndBiasBytes + (columns + 1) / 2;
    case WeightType::kFp16:
      return 2 * columns;
    case WeightType::kFp32:
      return 4 * columns;
  }
  return 0;
}

}  // namespace embershard
