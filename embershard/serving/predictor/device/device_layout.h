// How the tables of a package lie on the devices of a plan, and how a batch looks rows up there.
//
// Rows of one shard are packed for FBGEMM's operator: the shard's columns behind a header of their
// own, each row padded to 16 bytes. A row of zeros follows the last one, for ids that have no row
// and for rows of other shards.
//
// One call of the operator looks up all parts of a device that have the same scope, pooling and
// weights. Its result has their columns side by side. Calls go to the devices that hold the shards;
// one device, the batch's home, collects the results and runs the dense program:
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

// A shard as it lies in the memory of one device.
struct PackedShard {
  size_t table = 0;  // Position in Manifest::tables.
  WeightType weights = WeightType::kInt8;
  int64_t row_begin = 0;
  int64_t row_end = 0;
  size_t first_column = 0;  // In the table.
  size_t columns = 0;
  size_t row_bytes = 0;  // With the padding.
  size_t offset = 0;     // Bytes before it among the device's rows.

  int64_t rows() const { return row_end - row_begin; }
  int64_t zero_row() const { return rows(); }
  size_t size_bytes() const { return static_cast<size_t>(rows() + 1) * row_bytes; }
};

enum class LookupMode { kSum, kMean, kEach };  // kEach: a vector for each id, of a sequence.

// One shard in a call.
struct CallTable {
  size_t shard = 0;         // Position in DeviceLayout::shards of the call's device.
  size_t sparse_input = 0;  // Position in Schema::sparse.
  size_t result_column = 0;
  size_t result_columns = 0;  // Columns of the packed rows, a multiple of 4.

  // Leaves out ids without a row in the shard; otherwise they read the row of zeros, so that all
  // parts of a mean divide by the length of the whole list.
  bool leaves_out = false;
};

// Columns to copy or to add.
struct ColumnCopy {
  size_t from = 0;
  size_t to = 0;
  size_t columns = 0;
  size_t target = 0;  // Position among the matrices: 0 and 1 pooled, by MatrixOf(), then sequences.
  bool add = false;
};

struct LookupCall {
  size_t device = 0;  // Position in Plan::devices.
  size_t number = 0;  // Position among all calls of the device, over all homes.
  Scope scope = Scope::kExample;
  LookupMode mode = LookupMode::kSum;
  bool weighted = false;
  size_t columns = 0;  // Width of the result.
  std::vector<CallTable> tables;

  // Copies from the result to the program's inputs, if the call runs on the home and all its parts
  // have row 0. Empty if the result is staged.
  std::vector<ColumnCopy> direct;
  bool staged = false;
};

// Copies from the staged result of a call.
struct StagedCopy {
  size_t call = 0;  // Position in HomeLayout::calls.
  ColumnCopy copy;
};

// The work of a batch whose results are collected on one device.
struct HomeLayout {
  std::vector<LookupCall> calls;   // By device.
  std::vector<StagedCopy> placed;  // Parts with row 0 first, the others in the order of rows.
};

struct DeviceLayout {
  std::vector<std::vector<PackedShard>> shards;  // By device.
  std::vector<uint64_t> weight_bytes;            // By device.
  std::vector<HomeLayout> homes;                 // By device.
};

// kBadPackage: a shard has more rows than 32-bit numbers count.
Result<DeviceLayout> MakeDeviceLayout(const Package& package);

// Writes rows [begin, end) of a shard in their packed form, and zeros for its row of zeros, which
// is the last. kBadPackage: a row of int8 or int4 that overflows in FBGEMM's float16 arithmetic.
Status PackRows(const Package& package, const PackedShard& shard, int64_t begin, int64_t end,
                std::byte* packed);

}  // namespace embershard
