// Measures lookups in one table on one thread, for the planner's costs.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "package/row_layout.h"

namespace embershard {

// A table in memory, and lists to sum: bag b of a batch sums ids[offsets[b]] .. of that batch.
struct MeasuredTable {
  std::span<const std::byte> rows;  // Of RowBytes(weights, dim) each.
  WeightType weights = WeightType::kInt8;
  size_t dim = 0;
};

// Seconds of CPU time of one lookup of each batch, as a device of a plan does it: `ids` holds the
// batches concatenated, each of offsets.back() row numbers. kInternal where a row is not one of the
// table. REQUIRES: whole rows and whole batches, at least one of each, and ascending offsets from
// 0.
Result<std::vector<double>> LookupTimes(const MeasuredTable& table, std::span<const int64_t> ids,
                                        std::span<const int64_t> offsets);

}  // namespace embershard
