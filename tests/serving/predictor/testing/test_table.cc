#include "testing/test_table.h"

#include <bit>
#include <cmath>
#include <random>

namespace embershard::testing {
namespace {

// The bits of a float16. REQUIRES: `value` is one exactly, and neither tiny nor huge.
uint16_t HalfBits(double value) {
  if (value == 0) return 0;
  int exponent = 0;
  const double mantissa = std::frexp(std::fabs(value), &exponent);  // In [0.5, 1).
  const auto fraction = static_cast<uint16_t>((mantissa * 2 - 1) * 1024);
  const auto biased = static_cast<uint16_t>(exponent - 1 + 15);
  return static_cast<uint16_t>((value < 0 ? 0x8000 : 0) | (biased << 10) | fraction);
}

void AppendHalf(double value, std::vector<uint8_t>* bytes) {
  const uint16_t bits = HalfBits(value);
  bytes->push_back(static_cast<uint8_t>(bits & 0xff));
  bytes->push_back(static_cast<uint8_t>(bits >> 8));
}

void AppendFloatRow(TestTable* table, std::mt19937* random) {
  for (int64_t i = 0; i < table->dim; ++i) {
    const double value = (static_cast<int>((*random)() % (1U << 24)) - (1 << 23)) / 65536.0;
    const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
    for (int shift = 0; shift < 32; shift += 8) {
      table->bytes.push_back(static_cast<uint8_t>((bits >> shift) & 0xff));
    }
    table->values.push_back(value);
    table->magnitudes.push_back(std::fabs(value));
  }
}

// Appends the padding columns that docs/format.md requires. The last byte of an odd int4 dim has a
// free nibble.
void AppendPadding(TestTable* table) {
  const int64_t padding = (4 - table->dim % 4) % 4;
  int64_t bytes = padding;
  if (table->weights == WeightType::kInt4) {
    if (table->dim % 2 != 0) table->bytes.back() = static_cast<uint8_t>(table->bytes.back() | 0xf0);
    bytes = padding / 2;
  }
  if (table->weights == WeightType::kFp16) bytes = 2 * padding;
  if (table->weights == WeightType::kFp32) bytes = 4 * padding;
  table->bytes.insert(table->bytes.end(), static_cast<size_t>(bytes), 0xff);
}

void AppendHalfRow(TestTable* table, std::mt19937* random) {
  for (int64_t i = 0; i < table->dim; ++i) {
    const double value = (static_cast<int>((*random)() % 2047) - 1023) / 256.0;
    AppendHalf(value, &table->bytes);
    table->values.push_back(value);
    table->magnitudes.push_back(std::fabs(value));
  }
}

void AppendCodeRow(TestTable* table, int bits, std::mt19937* random) {
  const double scale = static_cast<double>((*random)() % 100 + 1) / 1024;
  const double bias = (static_cast<int>((*random)() % 400) - 200) / 64.0;
  AppendHalf(scale, &table->bytes);
  AppendHalf(bias, &table->bytes);
  for (int64_t i = 0; i < table->dim; ++i) {
    const auto code = static_cast<uint8_t>((*random)() % (1U << bits));
    table->values.push_back(scale * code + bias);
    table->magnitudes.push_back(scale * code + std::fabs(bias));
    if (bits == 8 || i % 2 == 0) {
      table->bytes.push_back(code);
    } else {
      table->bytes.back() = static_cast<uint8_t>(table->bytes.back() | (code << 4));
    }
  }
}

}  // namespace

TestTable MakeTable(const std::string& name, WeightType weights, int64_t rows, int64_t dim,
                    uint32_t seed) {
  std::mt19937 random(seed);
  TestTable table;
  table.name = name;
  table.weights = weights;
  table.rows = rows;
  table.dim = dim;
  for (int64_t row = 0; row < rows; ++row) {
    if (weights == WeightType::kFp16) {
      AppendHalfRow(&table, &random);
    } else if (weights == WeightType::kFp32) {
      AppendFloatRow(&table, &random);
    } else {
      AppendCodeRow(&table, weights == WeightType::kInt8 ? 8 : 4, &random);
    }
    AppendPadding(&table);
  }
  table.row_bytes = static_cast<int64_t>(table.bytes.size()) / rows;
  return table;
}

}  // namespace embershard::testing
