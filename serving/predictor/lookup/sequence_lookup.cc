#include "lookup/sequence_lookup.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "package/id_map.h"

namespace embershard {
namespace {

constexpr size_t kHeaderBytes = 4;  // scale fp16, bias fp16

float FloatOfHalf(uint16_t half) {
  const uint32_t sign = uint32_t{half} >> 15 << 31;
  const uint32_t rest = half & 0x7fffU;
  if (rest < 0x0400U) {  // Zero and subnormals: 2^-24 each.
    return std::bit_cast<float>(sign |
                                std::bit_cast<uint32_t>(static_cast<float>(rest) * 0x1p-24F));
  }
  // The exponent's bias grows from 15 to 127; that of infinity and NaN is all ones in both.
  const uint32_t bias = rest < 0x7c00U ? 112U << 23 : 224U << 23;
  return std::bit_cast<float>(sign | ((rest << 13) + bias));
}

float LoadHalf(const std::byte* bytes) {
  uint16_t half = 0;
  std::memcpy(&half, bytes, sizeof(half));
  return FloatOfHalf(half);
}

}  // namespace

// The product of a half and a code is exact in float32, so that the sum alone rounds, fused
// with it or not.
void DequantizeRow(WeightType weights, const std::byte* row, size_t dim, float* values) {
  if (weights == WeightType::kFp16) {
    for (size_t d = 0; d < dim; ++d) values[d] = LoadHalf(row + 2 * d);
    return;
  }
  const float scale = LoadHalf(row);
  const float bias = LoadHalf(row + 2);
  const auto* codes = reinterpret_cast<const uint8_t*>(row + kHeaderBytes);
  if (weights == WeightType::kInt8) {
    for (size_t d = 0; d < dim; ++d) values[d] = scale * static_cast<float>(codes[d]) + bias;
    return;
  }
  for (size_t d = 0; d < dim; d += 2) {
    const uint8_t both = codes[d / 2];  // Low nibble first.
    values[d] = scale * static_cast<float>(both & 0xf) + bias;
    values[d + 1] = scale * static_cast<float>(both >> 4) + bias;
  }
}

Status SequenceLookup::Run(size_t sequence, std::span<const int64_t> rows, float* values) const {
  const SequenceSpec& spec = package_.schema().sequences[sequence];
  const TableSpec& table = package_.manifest().tables[spec.table];
  const std::byte* const base =
      package_.tables().base() + package_.tables().offset_bytes(spec.table);
  const auto dim = static_cast<size_t>(table.dim);
  for (const int64_t row : rows) {
    if (row == kZeroRow) {
      std::fill_n(values, dim, 0.0F);
    } else if (row < 0 || row >= table.rows) {
      return Internal("table '" + table.name + "': row " + std::to_string(row) + " of feature '" +
                      package_.schema().sparse[spec.sparse_input].name + "' is not in -1.." +
                      std::to_string(table.rows - 1));
    } else {
      DequantizeRow(table.weights, base + row * table.row_bytes, dim, values);
    }
    values += dim;
  }
  return {};
}

}  // namespace embershard
