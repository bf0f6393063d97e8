// Sums of table rows, bag by bag: the innermost loop of a lookup, written once for each width
// of the processor's vectors.
//
// A row's value is float(scale * code + bias), rounded once, or its fp16 made wider, or its fp32.
// Values are added in the order of the list, rounded after each; with weights,
// sum = weight * value + sum is rounded once.
//
// Unweighted int8 and int4 rows of a list of 8 or more are added 32 at a time, from its front. If
// all scales of such a group are multiples of one power of two by less than 2^15, the sum of scale
// * code is a whole number of units, which is exact in whatever order it is made. It is rounded to
// float32; then unit * sum + the biases' sum is rounded once. Of biases eight sums are made in
// float32, each of every eighth row; then sums i and i + 4 are added, i and i + 2, and these two.
// Groups' sums are added in order.
//
// A group's unit puts its largest finite scale below 2^15, but is 2^-24 at least: the scales that
// are multiples of it are those down to a sixteenth of it at least. Rows with other scales,
// negative and infinite ones included, are summed by themselves as the values above, and this sum
// is added after the group's.
//
// Every kernel does just that: all give the same bits, and a column's sum does not depend on which
// columns, bags or tables are computed beside it.

#pragma once

// Nothing with code in it: files that are compiled for newer processors include this.
#include <cstddef>
#include <cstdint>

namespace embershard {

// Some columns of some bags of one table. Bag b's rows are rows[offsets[b]] up to
// rows[offsets[b + 1] - 1], all of the table: none is checked.
struct BagSumsCall {
  const std::byte* table = nullptr;  // Its first row.
  size_t row_bytes = 0;
  size_t first_column = 0;  // A multiple of 4.
  size_t columns = 0;       // More than 0. Rows hold StoredColumns() of them.

  const int64_t* rows = nullptr;
  const int64_t* offsets = nullptr;  // [bags + 1]
  const float* weights = nullptr;    // One for each row, or null: unweighted.
  size_t bags = 0;
  size_t later_bags = 0;  // Behind them in `offsets`: their rows may be asked for already.

  // Offsets of the whole lists, whose lengths divide the sums: a mean. Null: plain sums.
  const int64_t* mean_offsets = nullptr;  // [bags + 1]

  // Rows on their way from memory while one is added. The first so many of a call are for the
  // caller to ask for: best while the call before is at work.
  int64_t rows_ahead = 0;

  // How far behind those another row is on its way to the second cache, which has room for more
  // of them under way. 0: none, of a table that this cache holds.
  int64_t rows_far = 0;

  // Whether the piece that this thread checks next lies before this one in `rows`.
  bool backward = false;

  float* sums = nullptr;  // Bag b's begin at sums + b * stride. An empty bag's are zeros.
  size_t stride = 0;
};

// One function for each layout of rows (docs/format.md), and one that checks rows: whether any of
// `size` is not in begin .. end - 1. Any thread may call them.
struct BagSumsKernel {
  const char* name = "";
  void (*int8)(const BagSumsCall&) = nullptr;
  void (*int4)(const BagSumsCall&) = nullptr;
  void (*fp16)(const BagSumsCall&) = nullptr;
  void (*fp32)(const BagSumsCall&) = nullptr;
  bool (*any_outside)(const int64_t* rows, size_t size, int64_t begin, int64_t end) = nullptr;
};

// The fastest one that this processor has.
const BagSumsKernel& BestBagSums();

extern const BagSumsKernel kScalarBagSums;
#if defined(__x86_64__)  // REQUIRES: AVX2, FMA and F16C; AVX-512 F, BW and VL; and VNNI.
extern const BagSumsKernel kAvx2BagSums;
extern const BagSumsKernel kAvx512BagSums;
extern const BagSumsKernel kVnniBagSums;
#endif

}  // namespace embershard
