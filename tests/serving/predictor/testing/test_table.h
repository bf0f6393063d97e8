// Tables whose bytes and whose values are both known, made without the code under test.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "package/manifest.h"

namespace embershard::testing {

struct TestTable {
  std::string name;
  WeightType weights = WeightType::kInt8;
  int64_t rows = 0;
  int64_t dim = 0;
  int64_t row_bytes = 0;
  std::vector<uint8_t> bytes;  // [rows, row_bytes], as docs/format.md lays them out. Columns
                               // behind the dim have all bits set: NaN, or the highest code.
  std::vector<double> values;  // [rows, dim], what they mean. Exact.

  // [rows, dim], |scale * code| + |bias| or |value|: float arithmetic errs by a part of it.
  std::vector<double> magnitudes;

  const double* row(int64_t index) const { return values.data() + index * dim; }
  const double* row_magnitudes(int64_t index) const { return magnitudes.data() + index * dim; }
};

// Codes, scales, biases and values drawn from `seed`.
TestTable MakeTable(const std::string& name, WeightType weights, int64_t rows, int64_t dim,
                    uint32_t seed);

}  // namespace embershard::testing
