// Exact sums of scaled codes (exact_sums.h) in vectors of bytes, two rows at a time.
//
// `W` defines a vector of kLanes lanes of 16 bytes. Most operations stay within a lane.

#pragma once

#include <cstddef>
#include <cstdint>

#include "lookup/bytes_256.h"
#include "package/row_layout.h"

namespace embershard {
namespace {

// Calls add(row, next row, both multipliers in one word) for pairs of rows. An odd last row is
// passed twice, with 0 as the second multiplier. Calls fetch() before each pair.
template <class Add, class Fetch>
[[gnu::always_inline]] inline void ForPairs(const std::byte* const* rows,
                                            const int16_t* multipliers, size_t begin, size_t end,
                                            const Add& add, const Fetch& fetch) {
  size_t i = begin;
  for (; i + 2 <= end; i += 2) {
    fetch(i);
    int32_t pair;
    __builtin_memcpy(&pair, multipliers + i, sizeof(pair));
    add(rows[i], rows[i + 1], pair);
  }
  if (i < end) add(rows[i], rows[i], static_cast<uint16_t>(multipliers[i]));
}

// Writes the first n columns of `ints`, as unit * int + bias rounded once. `ints` has
// kSets * W::kLanes vectors, and each of their lanes holds 4 columns. Lane `lane` of vector v
// begins with column kLaneColumns * lane + 4 * v.
template <class W, size_t kSets, size_t kLaneColumns>
[[gnu::always_inline]] inline void StoreLanes(typename W::Ints* ints, float unit, float bias,
                                              float* to, size_t n) {
  for (size_t set = 0; set < kSets; ++set) {
    W::TransposeLanes(ints + set * W::kLanes);
    for (size_t lane = 0; lane < W::kLanes; ++lane) {
      const size_t column = kLaneColumns * lane + 4 * W::kLanes * set;
      if (column < n)
        W::StoreFloats(ints[set * W::kLanes + lane], unit, bias, to + column, n - column);
    }
  }
}

template <class W>
struct Int8Codes {
  static constexpr WeightType kWeights = WeightType::kInt8;
  using Headers = Headers256;
  static constexpr size_t kColumns = 16 * W::kLanes;
  static constexpr size_t kBlocksMax = 2;
  struct Sums {
    typename W::Ints vectors[4];
  };

  // Widens codes to 16 bits and multiplies them. One instruction adds the products of two rows.
  template <size_t kBlocks, class Group, class Fetch>
  [[gnu::always_inline]] static inline void Add(const Group& group, size_t first, size_t n,
                                                Sums* sums, const Fetch& fetch) {
    const auto zero = W::Set32(0);
    for (size_t b = 0; b < kBlocks; ++b) {
      for (auto& sum : sums[b].vectors) sum = zero;
    }
    const auto add = [&](const std::byte* row, const std::byte* other,
                         int32_t pair) __attribute__((always_inline)) {
      const auto factors = W::Set32(pair);
      for (size_t b = 0; b < kBlocks; ++b) {
        const auto x = W::Load(row + first + b * kColumns, StoredColumns(n));
        const auto y = W::Load(other + first + b * kColumns, StoredColumns(n));
        const auto low = W::LowBytes(x, y);
        const auto high = W::HighBytes(x, y);
        auto& sum = sums[b].vectors;
        sum[0] = W::MultiplyAddWords(W::LowBytes(low, zero), factors, sum[0]);
        sum[1] = W::MultiplyAddWords(W::HighBytes(low, zero), factors, sum[1]);
        sum[2] = W::MultiplyAddWords(W::LowBytes(high, zero), factors, sum[2]);
        sum[3] = W::MultiplyAddWords(W::HighBytes(high, zero), factors, sum[3]);
      }
    };
    ForPairs(group.rows, group.multipliers, 0, group.size, add, fetch);
  }

  static size_t ByteOf(size_t column) { return column; }
  static void Store(Sums& sums, float unit, float bias, float* to, size_t n) {
    StoreLanes<W, 4 / W::kLanes, 16>(sums.vectors, unit, bias, to, n);
  }
};

template <class W>
struct Int4Codes {
  static constexpr WeightType kWeights = WeightType::kInt4;
  using Headers = Headers256;
  static constexpr size_t kColumns = 32 * W::kLanes;
  static constexpr size_t kBlocksMax = 1;
  struct Sums {
    typename W::Ints vectors[8];
  };

  // Multiplies codes by the low and the high byte of a multiplier separately, and adds kRows rows
  // in 16 bits before widening the sums. Sums start at the smallest number to use all 16 bits.
  static constexpr size_t kRows = 16;
  static constexpr int16_t kLeast = -32768;
  static_assert(kRows * 15 * 255 <= 65535);

  template <size_t kBlocks, class Group, class Fetch>
  [[gnu::always_inline]] static inline void Add(const Group& group, size_t first, size_t n,
                                                Sums* sums, const Fetch& fetch) {
    const size_t size = group.size;
    const auto parts = static_cast<int32_t>((size + kRows - 1) / kRows);
    for (auto& sum : sums->vectors) sum = W::Set32(-(kLeast + 256 * kLeast) * parts);
    for (size_t begin = 0; begin < size; begin += kRows) {
      typename W::Ints low[4];
      typename W::Ints high[4];
      for (size_t v = 0; v < 4; ++v) low[v] = high[v] = W::Set16(kLeast);
      const auto add = [&](const std::byte* row, const std::byte* other,
                           int32_t pair) __attribute__((always_inline)) {
        const auto factors = W::Set32(pair);
        const auto low_factors = W::ShuffleBytes(factors, W::Set16(0x0200));
        const auto high_factors = W::ShuffleBytes(factors, W::Set16(0x0301));
        const auto x = W::Load(row + first, StoredColumns(n) / 2);
        const auto y = W::Load(other + first, StoredColumns(n) / 2);
        const auto low_bytes = W::LowBytes(x, y);
        const auto high_bytes = W::HighBytes(x, y);
        const auto mask = W::Set16(0x0F0F);
        const typename W::Ints codes[4] = {
            W::And(low_bytes, mask), W::And(W::ShiftRight4(low_bytes), mask),
            W::And(high_bytes, mask), W::And(W::ShiftRight4(high_bytes), mask)};
        for (size_t v = 0; v < 4; ++v) {
          low[v] = W::MultiplyAddBytes(low_factors, codes[v], low[v]);
          high[v] = W::MultiplyAddBytes(high_factors, codes[v], high[v]);
        }
      };
      const size_t end = size - begin < kRows ? size : begin + kRows;
      ForPairs(group.rows, group.multipliers, begin, end, add, fetch);
      const auto places = W::Set32(1 + (256 << 16));
      for (size_t v = 0; v < 4; ++v) {
        auto* const sum = sums->vectors + 2 * v;
        sum[0] = W::MultiplyAddWords(W::LowWords(low[v], high[v]), places, sum[0]);
        sum[1] = W::MultiplyAddWords(W::HighWords(low[v], high[v]), places, sum[1]);
      }
    }
  }

  static size_t ByteOf(size_t column) { return column / 2; }
  static void Store(Sums& sums, float unit, float bias, float* to, size_t n) {
    // Interleave the sums of even and odd columns.
    typename W::Ints ints[8];
    for (size_t half = 0; half < 2; ++half) {
      const auto* const even = sums.vectors + 4 * half;
      for (size_t i = 0; i < 2; ++i) {
        ints[4 * half + 2 * i] = W::LowInts(even[i], even[2 + i]);
        ints[4 * half + 2 * i + 1] = W::HighInts(even[i], even[2 + i]);
      }
    }
    StoreLanes<W, 8 / W::kLanes, 32>(ints, unit, bias, to, n);
  }
};

}  // namespace
}  // namespace embershard
