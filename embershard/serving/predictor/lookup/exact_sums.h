// Sums of unweighted bags of quantized rows in integers, defined in bag_sums.h. Only the file of
// each vector width includes this, because it is compiled for that file's processors.
//
// `C` defines how codes are summed and headers are read:
//   kWeights, kColumns                type of the rows; number of columns of a block
//   Sums, Add<kBlocks>(...)           integer sums of up to kBlocksMax blocks
//   Store(sums, unit, bias, to, n)    writes n of a block's columns: unit * sum + bias
//   Headers::Read                     reads the headers of 8 rows
//   Headers::Sum                      sums biases in 8 lanes

#pragma once

#include <cstddef>
#include <cstdint>

#include "lookup/bag_sums.h"
#include "lookup/bag_sums_loop.h"
#include "lookup/exact_rows.h"
#include "lookup/half.h"
#include "lookup/prefetch.h"
#include "package/row_layout.h"

namespace embershard {
namespace {

template <class C, size_t kLines>
class ExactSums {
 public:
  ExactSums(const BagSumsCall& call, void (*sum_floats)(const BagSumsCall&))
      : call_(call), sum_floats_(sum_floats), rows_(call) {}

  void Sum() {
    for (size_t bag = 0; bag < call_.bags; ++bag) {
      float* const to = call_.sums + bag * call_.stride;
      FetchSums(bag + kBagsAhead);
      int64_t begin = call_.offsets[bag];
      const int64_t bag_end = call_.offsets[bag + 1];
      bool first = true;
      do {
        const int64_t end = bag_end - begin < kGroupRows ? bag_end : begin + kGroupRows;
        rows_.Read(begin, end + kGroupRows);
        SumGroup(begin, end, first, to);
        first = false;
        begin = end;
      } while (begin < bag_end);
      if (call_.mean_offsets != nullptr) Divide(bag, to);
    }
  }

 private:
  static constexpr size_t kBagsAhead = 2;

  // Rows whose scales are multiples of `unit`, and the sum of their biases.
  struct Group {
    const std::byte* const* rows;
    const int16_t* multipliers;
    size_t size;
    float unit;
    float bias;
  };

  // Writing the sums of a later bag then need not wait.
  void FetchSums(size_t bag) const {
    if (bag >= call_.bags) return;
    const float* const sums = call_.sums + bag * call_.stride;
    constexpr size_t kLineColumns = kLineBytes / sizeof(float);
    for (size_t i = 0; i < call_.columns; i += kLineColumns) __builtin_prefetch(sums + i, 1);
  }

  void SumGroup(int64_t begin, int64_t end, bool first, float* to) {
    const auto size = static_cast<size_t>(end - begin);
    const float bias = C::Headers::Sum(rows_.biases(begin), size);
    if (bias == bias) {
      SumColumns({rows_.at(begin), rows_.multipliers(begin), size, rows_.unit(), bias}, first, to);
    } else {
      SumMixedScales(begin, end, first, to);
    }
  }

  // Sums a group whose scales are not all multiples of the unit. Chooses another unit by the
  // largest scale, and adds rows whose scale is no multiple of that one in floating point.
  void SumMixedScales(int64_t begin, int64_t end, bool first, float* to) {
    const std::byte* const* const at = rows_.at(begin);
    const auto size = static_cast<size_t>(end - begin);
    uint32_t largest = 0;
    for (size_t i = 0; i < size; ++i) {
      const uint32_t scale = rows_.ScaleOf(at[i]);
      if (scale < kInfiniteHalf && scale > largest) largest = scale;
    }
    const uint32_t exponent = largest >> 10 > kShiftMax ? (largest >> 10) - kShiftMax : 1;
    const std::byte* rows[kGroupRows];
    int16_t multipliers[kGroupRows];
    float biases[kGroupRows + kHeaderRows];
    int64_t others[kGroupRows];
    size_t fitting = 0;
    for (size_t i = 0; i < size; ++i) {
      others[i - fitting] = call_.rows[begin + static_cast<int64_t>(i)];
      rows[fitting] = at[i];
      biases[fitting] = FloatOfHalf(static_cast<uint16_t>(rows_.HeaderOf(at[i]) >> 16));
      fitting += MultiplierOf(rows_.ScaleOf(at[i]), exponent, &multipliers[fitting]);
    }
    SumColumns({rows, multipliers, fitting, UnitOf(exponent), C::Headers::Sum(biases, fitting)},
               first, to);
    AddFloats(others, size - fitting, to);
    rows_.ReadAgain(end, largest >> 10);
  }

  void AddFloats(const int64_t* rows, size_t size, float* to) {
    if (size == 0) return;
    const int64_t offsets[2] = {0, static_cast<int64_t>(size)};
    float sums[64];
    BagSumsCall call{.table = call_.table,
                     .row_bytes = call_.row_bytes,
                     .rows = rows,
                     .offsets = offsets,
                     .bags = 1,
                     .sums = sums};
    for (size_t column = 0; column < call_.columns; column += call.columns) {
      call.first_column = call_.first_column + column;
      call.columns = call_.columns - column < 64 ? call_.columns - column : 64;
      sum_floats_(call);
      for (size_t i = 0; i < call.columns; ++i) to[column + i] += sums[i];
    }
  }

  void SumColumns(const Group& group, bool first, float* to) {
    size_t column = 0;
    while (call_.columns - column >= C::kColumns) {
      const size_t blocks = (call_.columns - column) / C::kColumns;
      const size_t summed = blocks < C::kBlocksMax ? blocks : C::kBlocksMax;
      SumBlocksOf<C::kBlocksMax>(summed, group, column, first, to);
      column += summed * C::kColumns;
    }
    if (column < call_.columns) SumBlocks<1, true>(group, column, first, to);
  }

  template <size_t kBlocks>
  void SumBlocksOf(size_t blocks, const Group& group, size_t column, bool first, float* to) {
    if (blocks == kBlocks) {
      SumBlocks<kBlocks, false>(group, column, first, to);
    } else if constexpr (kBlocks > 1) {
      SumBlocksOf<kBlocks - 1>(blocks, group, column, first, to);
    }
  }

  // Prefetches one later row per summed row, because few prefetches can be outstanding.
  template <size_t kBlocks, bool kTail>
  void SumBlocks(const Group& group, size_t column, bool first, float* to) {
    const size_t n = kTail ? call_.columns - column : C::kColumns;
    typename C::Sums sums[kBlocks];
    if (column == 0 && rows_.CanFetch(group.size)) {
      C::template Add<kBlocks>(group, C::ByteOf(column), n, sums, rows_.FetchPairs(group.size));
      rows_.AddFetched(group.size / 2 * 2);
    } else {
      C::template Add<kBlocks>(group, C::ByteOf(column), n, sums, [](size_t) {});
    }
    float stored[kBlocks * C::kColumns];
    float* const out = first ? to + column : stored;
    for (size_t b = 0; b < kBlocks; ++b) {
      C::Store(sums[b], group.unit, group.bias, out + b * C::kColumns, n);
    }
    if (first) return;
    for (size_t i = 0; i < (kTail ? n : kBlocks * C::kColumns); ++i) to[column + i] += stored[i];
  }

  void Divide(size_t bag, float* to) const {
    const int64_t length = call_.mean_offsets[bag + 1] - call_.mean_offsets[bag];
    if (length <= 1) return;
    const float factor = 1.0F / static_cast<float>(length);
    for (size_t i = 0; i < call_.columns; ++i) to[i] *= factor;
  }

  const BagSumsCall& call_;
  void (*const sum_floats_)(const BagSumsCall&);
  ExactRows<C, kLines> rows_;
};

template <class C>
void SumGroups(const BagSumsCall& call, void (*sum_floats)(const BagSumsCall&)) {
  const size_t bytes = ColumnByte(C::kWeights, call.columns) - ColumnByte(C::kWeights, 0);
  if (bytes <= kLineBytes) return ExactSums<C, 2>(call, sum_floats).Sum();
  if (bytes <= 2 * kLineBytes) return ExactSums<C, 3>(call, sum_floats).Sum();
  ExactSums<C, 0>(call, sum_floats).Sum();
}

template <class C>
void SumExactly(const BagSumsCall& call, void (*sum_floats)(const BagSumsCall&)) {
  if (call.weights != nullptr) return sum_floats(call);
  const auto few = [&call](size_t bag) {
    return call.offsets[bag + 1] - call.offsets[bag] < kExactRows;
  };
  for (size_t begin = 0, end = 0; begin < call.bags; begin = end) {
    while (end < call.bags && few(end) == few(begin)) ++end;
    BagSumsCall run = call;
    run.offsets += begin;
    run.bags = end - begin;
    run.later_bags += call.bags - end;
    if (call.mean_offsets != nullptr) run.mean_offsets += begin;
    run.sums += begin * call.stride;
    if (few(begin)) {
      sum_floats(run);
    } else {
      SumGroups<C>(run, sum_floats);
    }
  }
}

template <class V, class Int8, class Int4, class Narrow8 = Int8, class Narrow4 = Int4>
constexpr BagSumsKernel KernelOf(const char* name) {
  const auto int8 = [](const BagSumsCall& call) {
    if (call.columns <= 32) return SumExactly<Narrow8>(call, SumBags<V, WeightType::kInt8>);
    SumExactly<Int8>(call, SumBags<V, WeightType::kInt8>);
  };
  const auto int4 = [](const BagSumsCall& call) {
    if (call.columns <= 64) return SumExactly<Narrow4>(call, SumBags<V, WeightType::kInt4>);
    SumExactly<Int4>(call, SumBags<V, WeightType::kInt4>);
  };
  return {name,      int8, int4, SumBags<V, WeightType::kFp16>, SumBags<V, WeightType::kFp32>,
          AnyOutside};
}

}  // namespace
}  // namespace embershard
