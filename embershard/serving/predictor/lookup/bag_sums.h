// Sums of table rows, bag by bag: the innermost loop of a lookup, once for each vector width.
//
// A row's value is float(scale * code + bias), rounded once, or its fp16 widened to float, or its
// fp32. Values are added in the order of the list, rounding after each addition. With weights,
// sum = weight * value + sum is rounded once.
//
// Unweighted int8 and int4 rows of a list of at least 8 are added in groups of 32, from its front:
// 1. A group has a unit, a power of two of at least 2^-24. Its largest finite scale is less than
//    2^15 units. Every scale of at least a sixteenth of the largest one is a multiple of the unit.
// 2. The sum of scale * code is then an integer number of units, which is exact in any order. It is
//    rounded to float32, and unit * sum + sum of biases is rounded once.
// 3. Biases are summed in float32, in eight sums of every eighth row. Then sums i and i + 4 are
//    added, then i and i + 2, and then the last two.
// 4. Rows whose scale is no multiple of the unit, or negative or infinite, are summed like the
//    values above. This sum is added after the group's.
// 5. The sums of groups are added in order.
//
// Every kernel follows these rules. All return the same bits, and the sum of a column does not
// depend on other columns, bags or tables that are computed with it.

#pragma once

// Includes no header with code, because files compiled for newer processors include this.
#include <cstddef>
#include <cstdint>

namespace embershard {

// Some columns of some bags of one table. Bag b has rows[offsets[b]] .. rows[offsets[b + 1] - 1].
// Rows are not checked; all must be rows of the table.
struct BagSumsCall {
  const std::byte* table = nullptr;  // First row of the table.
  size_t row_bytes = 0;
  size_t first_column = 0;  // A multiple of 4.
  size_t columns = 0;       // At least 1. StoredColumns() of them may be read.

  const int64_t* rows = nullptr;
  const int64_t* offsets = nullptr;  // [bags + 1]
  const float* weights = nullptr;    // One for each row, or null if unweighted.
  size_t bags = 0;
  size_t later_bags = 0;  // Further bags in `offsets`, whose rows may be prefetched.

  // For mean pooling: offsets of the whole lists, whose lengths divide the sums. Null: no division.
  const int64_t* mean_offsets = nullptr;  // [bags + 1]

  // Prefetch distance: while row i is added, row i + rows_ahead is prefetched. The caller
  // prefetches the first `rows_ahead` rows, best during the call before. Integer sums
  // (exact_rows.h) ignore this field and prefetch all their rows themselves.
  int64_t rows_ahead = 0;

  // Number of rows beyond those at which rows are prefetched into the second-level cache, which
  // allows more outstanding prefetches. 0 for a table that fits into this cache: none.
  int64_t rows_far = 0;

  // True if the next piece of this thread comes before this one in `rows`.
  bool backward = false;

  float* sums = nullptr;  // Bag b's sums begin at sums + b * stride. They are 0 for an empty bag.
  size_t stride = 0;
};

// One function for each layout of rows (docs/format.md). any_outside() returns true if any of
// `size` rows is not in begin .. end - 1. All functions are thread-safe.
struct BagSumsKernel {
  const char* name = "";
  void (*int8)(const BagSumsCall&) = nullptr;
  void (*int4)(const BagSumsCall&) = nullptr;
  void (*fp16)(const BagSumsCall&) = nullptr;
  void (*fp32)(const BagSumsCall&) = nullptr;
  bool (*any_outside)(const int64_t* rows, size_t size, int64_t begin, int64_t end) = nullptr;
};

const BagSumsKernel& BestBagSums();

extern const BagSumsKernel kScalarBagSums;
#if defined(__x86_64__)
extern const BagSumsKernel kAvx2BagSums;    // REQUIRES: AVX2, FMA and F16C.
extern const BagSumsKernel kAvx512BagSums;  // REQUIRES: also AVX-512 F, BW and VL.
extern const BagSumsKernel kVnniBagSums;    // REQUIRES: also AVX-512 VNNI.
#endif

}  // namespace embershard
