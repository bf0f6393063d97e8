// Where the columns of a stored row lie (docs/format.md).
//
// With internal linkage: files that are compiled for newer processors include this, and nothing
// of what they make of it may be linked into the others.

#ifndef EMBERSHARD_PACKAGE_ROW_LAYOUT_H_
#define EMBERSHARD_PACKAGE_ROW_LAYOUT_H_

#include <cstddef>

namespace embershard {

enum class WeightType { kInt8, kInt4, kFp16 };

constexpr size_t kScaleAndBiasBytes = 4;  // fp16 each, before the codes of a quantized row.

// The byte of a row in which `column` begins, which is even; the row's size, where it is the dim.
static constexpr size_t ColumnByte(WeightType weights, size_t column) {
  switch (weights) {
    case WeightType::kInt8:
      return kScaleAndBiasBytes + column;
    case WeightType::kInt4:
      return kScaleAndBiasBytes + column / 2;
    case WeightType::kFp16:
      return 2 * column;
  }
  return 0;
}

}  // namespace embershard

#endif  // EMBERSHARD_PACKAGE_ROW_LAYOUT_H_
