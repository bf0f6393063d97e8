// The memory layout of a package's tables on the devices of a plan, and the lookups of a batch.
//
// The rows of a shard are packed for FBGEMM's operator. A packed row is a header of its own, then
// the shard's columns, padded to 16 bytes. A row of zeros follows the last row. It serves ids that
// have no row, and rows of other shards.
//
// One call of the operator looks up all parts of a device that have the same scope, pooling and
// weighting. Its result has the columns of all these parts side by side. Calls run on the devices
// that hold the shards. One device, the home of the batch, collects the results and runs the dense
// program:
//
//   device 1: call ─▶ staging ─┐ across
//   home:     call ─▶ staging ─┴▶ copy the parts with row 0, then add the others by row
//             call ─────────────▶ straight into the program's inputs, if all its parts have row 0

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "package/package.h"

namespace embershard {

constexpr size_t kDeviceRowAlignment = 16;

struct PackedShard {
  size_t table = 0;  // Position in Manifest::tables.
  WeightType weights = WeightType::kInt8;
  int64_t row_begin = 0;
  int64_t row_end = 0;
  size_t first_column = 0;  // In the table.
  size_t columns = 0;
  size_t row_bytes = 0;  // Includes the padding.
  size_t offset = 0;     // Position of its first byte among the device's rows.

  int64_t rows() const { return row_end - row_begin; }
  int64_t zero_row() const { return rows(); }
  size_t size_bytes() const { return static_cast<size_t>(rows() + 1) * row_bytes; }
};

// kUnpooled returns one vector per id, for a sequence.
enum class LookupMode { kSum, kMean, kUnpooled };

struct CallTable {
  size_t shard = 0;         // Position in DeviceLayout::shards of the call's device.
  size_t sparse_input = 0;  // Position in Schema::sparse.
  size_t result_column = 0;
  size_t result_columns = 0;  // Columns of the packed rows, a multiple of 4.

  // Leave out ids without a row in the shard. Otherwise they read the row of zeros, so that every
  // part of a mean divides by the length of the whole list.
  bool skip_missing = false;
};

// A copy of columns from a lookup's result to a matrix of the program's inputs.
struct ColumnCopy {
  size_t from = 0;
  size_t to = 0;
  size_t columns = 0;
  size_t target = 0;  // Position of the matrix, see LookupPart::matrix.
  bool add = false;   // Adds to the matrix instead.
};

struct LookupCall {
  size_t device = 0;  // Position in Plan::devices.
  size_t number = 0;  // Position among the device's calls of all homes.
  Scope scope = Scope::kExample;
  LookupMode mode = LookupMode::kSum;
  bool weighted = false;
  size_t columns = 0;  // Width of the result.
  std::vector<CallTable> tables;

  // Copies straight to the program's inputs, for a call on the home device whose parts all have row
  // 0. Empty if the result is staged.
  std::vector<ColumnCopy> direct;
  bool staged = false;
};

struct StagedCopy {
  size_t call = 0;  // Position in HomeLayout::calls.
  ColumnCopy copy;
};

struct HomeLayout {
  std::vector<LookupCall> calls;   // By device.
  std::vector<StagedCopy> placed;  // In the order of rows, so parts with row 0 come first.
};

struct DeviceLayout {
  std::vector<std::vector<PackedShard>> shards;  // By device.
  std::vector<uint64_t> weight_bytes;            // By device.
  std::vector<HomeLayout> homes;                 // By device.
};

// Fails with kBadPackage if a shard has too many rows for 32-bit row numbers.
Result<DeviceLayout> MakeDeviceLayout(const Package& package);

// Writes rows [begin, end) of a shard in packed form. Row shard.zero_row() is written as zeros.
// Fails with kBadPackage if a row of int8 or int4 overflows in FBGEMM's float16 arithmetic.
Status PackRows(const Package& package, const PackedShard& shard, int64_t begin, int64_t end,
                std::byte* packed);

}  // namespace embershard
