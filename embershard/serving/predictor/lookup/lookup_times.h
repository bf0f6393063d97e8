// Measures lookups in one table on one thread, for the planner's costs.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "package/row_layout.h"

namespace embershard {

struct MeasuredTable {
  std::span<const std::byte> rows;  // RowBytes(weights, dim) bytes each.
  WeightType weights = WeightType::kInt8;
  size_t dim = 0;
};

// Returns the CPU seconds of one lookup of each batch. `ids` holds the batches one after another,
// each of offsets.back() row numbers. Bag b sums rows offsets[b] .. offsets[b + 1] - 1 of its
// batch. Fails with kInternal if the table has no such row. REQUIRES: whole rows and whole batches,
// at least one of each, and ascending offsets from 0.
Result<std::vector<double>> LookupTimes(const MeasuredTable& table, std::span<const int64_t> ids,
                                        std::span<const int64_t> offsets);

}  // namespace embershard
