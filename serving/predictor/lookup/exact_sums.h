// Sums of unweighted bags of quantized rows in whole numbers, as bag_sums.h defines them. Included
// by one file a width of vectors, and nothing else: it is compiled for that file's processors.
//
// `C` says how codes are summed and headers are read:
//   kWeights, kColumns                the type of rows; columns of a block
//   Sums, Add<kBlocks>(...)           whole sums of up to kBlocksMax blocks
//   Store(sums, unit, bias, to, n)    writes n of a block's columns: unit * sum + bias
//   Headers::Read, Headers::Sum       of 8 rows; the sum of biases, in 8 lanes

#ifndef EMBERSHARD_LOOKUP_EXACT_SUMS_H_
#define EMBERSHARD_LOOKUP_EXACT_SUMS_H_

#include <cstddef>
#include <cstdint>

#include "lookup/bag_sums.h"
#include "lookup/half.h"
#include "lookup/prefetch.h"
#include "package/row_layout.h"

namespace embershard {
namespace {

constexpr int64_t kHeaderRows = 8;  // Whose headers are read at once.

// kLines, 2 or 3, of a row are asked for ahead; 0: as many as it has.
template <class C, size_t kLines>
class ExactSums {
 public:
  ExactSums(const BagSumsCall& call, void (*sum_plainly)(const BagSumsCall&))
      : call_(call),
        sum_plainly_(sum_plainly),
        begin_byte_(ColumnByte(C::kWeights, call.first_column)),
        bytes_(ColumnByte(C::kWeights, call.first_column + call.columns) - begin_byte_),
        begin_(call.offsets[0]),
        end_(call.offsets[call.bags]),
        fetch_end_(call.offsets[call.bags + call.later_bags]),
        fetched_(begin_),
        read_(begin_) {}

  void Sum() {
    Fetch(begin_ + kRowsAhead);
    SetExponent(ScaleOf(at_[0]) >> 10);
    for (size_t bag = 0; bag < call_.bags; ++bag) {
      float* const to = call_.sums + bag * call_.stride;
      FetchSums(bag + kBagsAhead);
      int64_t begin = call_.offsets[bag];
      const int64_t bag_end = call_.offsets[bag + 1];
      bool first = true;
      do {
        const int64_t end = Smaller(bag_end, begin + kGroupRows);
        MoveUp(begin);
        Read(end + kGroupRows);
        SumGroup(begin, end, first, to);
        first = false;
        begin = end;
      } while (begin < bag_end);
      if (call_.mean_offsets != nullptr) Divide(bag, to);
    }
  }

 private:
  static constexpr int64_t kRowsAhead = kGroupRows + 2 * kHeaderRows;
  static constexpr size_t kBagsAhead = 2;
  static constexpr int64_t kRoom = 16 * kGroupRows;

  // Rows of a group whose scales are multiples of `unit`, and what is added to their sum.
  struct Group {
    const std::byte* const* rows;
    const int16_t* multipliers;
    size_t size;
    float unit;
    float bias;
  };

  static int64_t Smaller(int64_t a, int64_t b) { return a < b ? a : b; }

  uint32_t HeaderOf(const std::byte* codes) const {
    uint32_t header;
    __builtin_memcpy(&header, codes - begin_byte_, sizeof(header));
    return header;
  }
  uint32_t ScaleOf(const std::byte* codes) const { return HeaderOf(codes) & 0xFFFFU; }

  // Scales up to twice as large as the one of this exponent will fit, and those down to an eighth.
  void SetExponent(uint32_t exponent) {
    exponent_ = exponent < 4 ? 1 : exponent > kExponentMax + 3 ? kExponentMax : exponent - 3;
  }

  [[gnu::always_inline]] static inline void FetchRow(const std::byte* codes, size_t bytes,
                                                     const std::byte** at) {
    if constexpr (kLines == 0) {
      Prefetch(codes, codes + bytes);
    } else {
      __builtin_prefetch(codes);
      if constexpr (kLines > 2) __builtin_prefetch(codes + kLineBytes);
      __builtin_prefetch(codes + bytes - 1);
    }
    *at = codes;
  }

  // Memory that sums will be written to: else writing waits for it.
  void FetchSums(size_t bag) const {
    if (bag >= call_.bags) return;
    const float* const sums = call_.sums + bag * call_.stride;
    constexpr size_t kLineColumns = kLineBytes / sizeof(float);
    for (size_t i = 0; i < call_.columns; i += kLineColumns) __builtin_prefetch(sums + i, 1);
  }

  void Fetch(int64_t to) {
    to = Smaller(to, fetch_end_);
    const std::byte* const codes = call_.table + begin_byte_;
    for (; fetched_ < to; ++fetched_) {
      FetchRow(codes + static_cast<size_t>(call_.rows[fetched_]) * call_.row_bytes, bytes_,
               at_ + (fetched_ - begin_));
    }
  }

  void Read(int64_t to) {
    to = Smaller(to, end_);
    if (read_ >= to) return;
    Fetch(to + kHeaderRows);
    if (fetched_ == fetch_end_) {  // Headers are read behind the last row too.
      const std::byte** const behind = at_ + (fetched_ - begin_);
      for (int64_t i = 0; i < kHeaderRows; ++i) behind[i] = behind[-1];
    }
    for (; read_ < to; read_ += kHeaderRows) {
      const int64_t i = read_ - begin_;
      C::Headers::Read(at_ + i, begin_byte_, exponent_, multipliers_ + i, biases_ + i);
    }
  }

  // Makes room by dropping the rows before `begin`.
  void MoveUp(int64_t begin) {
    if (fetched_ - begin_ < kRoom - 4 * kGroupRows) return;
    const int64_t moved = (begin - begin_) / kHeaderRows * kHeaderRows;
    const auto size = static_cast<size_t>(fetched_ - begin_ - moved + kHeaderRows);
    __builtin_memmove(at_, at_ + moved, size * sizeof(at_[0]));
    __builtin_memmove(multipliers_, multipliers_ + moved, size * sizeof(multipliers_[0]));
    __builtin_memmove(biases_, biases_ + moved, size * sizeof(biases_[0]));
    begin_ += moved;
  }

  void SumGroup(int64_t begin, int64_t end, bool first, float* to) {
    const int64_t i = begin - begin_;
    const auto size = static_cast<size_t>(end - begin);
    const float bias = C::Headers::Sum(biases_ + i, size);
    if (bias == bias) {
      SumColumns({at_ + i, multipliers_ + i, size, UnitOf(exponent_), bias}, first, to);
    } else {
      SumUnlikeRows(begin, end, first, to);
    }
  }

  // A group with scales that `exponent_` does not suit: finds one that does, and sums the rows that
  // it does not suit either as weighted ones are.
  void SumUnlikeRows(int64_t begin, int64_t end, bool first, float* to) {
    const std::byte* const* const at = at_ + (begin - begin_);
    const auto size = static_cast<size_t>(end - begin);
    uint32_t largest = 0;
    for (size_t i = 0; i < size; ++i) {
      const uint32_t scale = ScaleOf(at[i]);
      if (scale < kInfiniteHalf && scale > largest) largest = scale;
    }
    const uint32_t exponent = largest >> 10 > kShiftMax ? (largest >> 10) - kShiftMax : 1;
    const std::byte* rows[kGroupRows];
    int16_t multipliers[kGroupRows];
    float biases[kGroupRows + kHeaderRows];
    int64_t others[kGroupRows];
    size_t alike = 0;
    for (size_t i = 0; i < size; ++i) {
      others[i - alike] = call_.rows[begin + static_cast<int64_t>(i)];
      rows[alike] = at[i];
      biases[alike] = FloatOfHalf(static_cast<uint16_t>(HeaderOf(at[i]) >> 16));
      alike += MultiplierOf(ScaleOf(at[i]), exponent, &multipliers[alike]);
    }
    SumColumns({rows, multipliers, alike, UnitOf(exponent), C::Headers::Sum(biases, alike)}, first,
               to);
    AddPlainly(others, size - alike, to);
    SetExponent(largest >> 10);
    read_ = begin_ + (end - begin_) / kHeaderRows * kHeaderRows;
  }

  void AddPlainly(const int64_t* rows, size_t size, float* to) {
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
      sum_plainly_(call);
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

  // Asks for as many rows ahead as are summed, evenly: memory has few places for what is under way.
  template <size_t kBlocks, bool kTail>
  void SumBlocks(const Group& group, size_t column, bool first, float* to) {
    const size_t n = kTail ? call_.columns - column : C::kColumns;
    typename C::Sums sums[kBlocks];
    const auto left = static_cast<size_t>(Smaller(fetch_end_, begin_ + kRoom) - fetched_);
    if (column == 0 && left >= group.size) {
      const std::byte* const codes = call_.table + begin_byte_;
      const int64_t* const rows = call_.rows + fetched_;
      const std::byte** const at = at_ + (fetched_ - begin_);
      const size_t row_bytes = call_.row_bytes;
      const size_t bytes = bytes_;
      C::template Add<kBlocks>(group, C::ByteOf(column), n, sums, [=](size_t i) {
        FetchRow(codes + static_cast<size_t>(rows[i]) * row_bytes, bytes, at + i);
        FetchRow(codes + static_cast<size_t>(rows[i + 1]) * row_bytes, bytes, at + i + 1);
      });
      fetched_ += static_cast<int64_t>(group.size / 2 * 2);
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
  void (*const sum_plainly_)(const BagSumsCall&);
  const size_t begin_byte_;  // Of a row: its first code that counts.
  const size_t bytes_;       // Its codes.
  uint32_t exponent_ = 1;    // Of the smallest scale that fits `multipliers_`.

  // Positions among the call's rows. Rows begin_ .. fetched_ are in `at_` and under way; read_ are
  // in `multipliers_` and `biases_`, a NaN for a row whose scale does not fit.
  int64_t begin_;
  const int64_t end_;
  const int64_t fetch_end_;
  int64_t fetched_;
  int64_t read_;
  const std::byte* at_[kRoom + kHeaderRows];
  int16_t multipliers_[kRoom + kHeaderRows];
  float biases_[kRoom + kHeaderRows];
};

template <class C>
void SumGroups(const BagSumsCall& call, void (*sum_plainly)(const BagSumsCall&)) {
  const size_t bytes = ColumnByte(C::kWeights, call.columns) - ColumnByte(C::kWeights, 0);
  if (bytes <= kLineBytes) return ExactSums<C, 2>(call, sum_plainly).Sum();
  if (bytes <= 2 * kLineBytes) return ExactSums<C, 3>(call, sum_plainly).Sum();
  ExactSums<C, 0>(call, sum_plainly).Sum();
}

// `sum_plainly` does weighted bags, and those of few rows.
template <class C>
void SumExactly(const BagSumsCall& call, void (*sum_plainly)(const BagSumsCall&)) {
  if (call.weights != nullptr) return sum_plainly(call);
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
      sum_plainly(run);
    } else {
      SumGroups<C>(run, sum_plainly);
    }
  }
}

}  // namespace
}  // namespace embershard

#endif  // EMBERSHARD_LOOKUP_EXACT_SUMS_H_
