// Layout of the columns of a stored row (docs/format.md).
//
// Functions have internal linkage. Files compiled for newer processors include this, and their code
// must not be linked into other files.

#pragma once

#include <cstddef>

namespace embershard {

enum class WeightType { kInt8, kInt4, kFp16, kFp32 };

constexpr size_t kScaleAndBiasBytes = 4;  // Two fp16, before the codes of a quantized row.

// The number of columns of a stored row is rounded up to a multiple of this.
constexpr size_t kColumnMultiple = 4;

static constexpr size_t StoredColumns(size_t dim) {
  return (dim + kColumnMultiple - 1) / kColumnMultiple * kColumnMultiple;
}

// Number of bytes of a row's first `columns` columns, including its header. If `columns` is even,
// the next column begins there. For all stored columns, this is the row's size.
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
