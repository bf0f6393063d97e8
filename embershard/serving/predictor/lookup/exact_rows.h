// Prefetches the rows of a call of exact_sums.h in order, and reads their headers 8 at a time.

#pragma once

#include <cstddef>
#include <cstdint>

#include "lookup/bag_sums.h"
#include "lookup/half.h"
#include "lookup/prefetch.h"
#include "package/row_layout.h"

namespace embershard {
namespace {

constexpr int64_t kHeaderRows = 8;  // Number of rows whose headers are read together.

// kLines: number of cache lines of a row that are prefetched, 2 or 3. 0: all of its lines.
template <class C, size_t kLines>
class ExactRows {
 public:
  explicit ExactRows(const BagSumsCall& call)
      : call_(call),
        begin_byte_(ColumnByte(C::kWeights, call.first_column)),
        bytes_(ColumnByte(C::kWeights, call.first_column + call.columns) - begin_byte_),
        begin_(call.offsets[0]),
        end_(call.offsets[call.bags]),
        fetch_end_(call.offsets[call.bags + call.later_bags]),
        fetched_(begin_),
        read_(begin_),
        ids_ahead_(call.backward ? -kIdsAhead : kIdsAhead) {
    Fetch(begin_ + kGroupRows + kHeaderRows + kRowsAhead);
    SetExponent(ScaleOf(at_[0]) >> 10);
  }

  // Data of a row whose header has been read. `row` is its position in the call's rows.
  const std::byte* const* at(int64_t row) const { return at_ + (row - begin_); }
  const int16_t* multipliers(int64_t row) const { return multipliers_ + (row - begin_); }
  const float* biases(int64_t row) const { return biases_ + (row - begin_); }
  float unit() const { return UnitOf(exponent_); }

  uint32_t HeaderOf(const std::byte* codes) const {
    uint32_t header;
    __builtin_memcpy(&header, codes - begin_byte_, sizeof(header));
    return header;
  }
  uint32_t ScaleOf(const std::byte* codes) const { return HeaderOf(codes) & 0xFFFFU; }

  // Drops the rows before `begin` to make room.
  void Read(int64_t begin, int64_t to) {
    MoveUp(begin);
    to = to < end_ ? to : end_;
    if (read_ >= to) return;
    Fetch(to + kRowsAhead);
    if (fetched_ == fetch_end_) {  // Repeat the last row, since kHeaderRows headers are read.
      const std::byte** const padding = at_ + (fetched_ - begin_);
      for (int64_t i = 0; i < kHeaderRows; ++i) padding[i] = padding[-1];
    }
    for (; read_ < to; read_ += kHeaderRows) {
      const int64_t i = read_ - begin_;
      __builtin_prefetch(call_.rows + read_ + ids_ahead_, 0, 2);
      C::Headers::Read(at_ + i, begin_byte_, exponent_, multipliers_ + i, biases_ + i);
    }
  }

  // Uses a unit for scales of this exponent.
  void ReadAgain(int64_t row, uint32_t scale_exponent) {
    SetExponent(scale_exponent);
    read_ = begin_ + (row - begin_) / kHeaderRows * kHeaderRows;
  }

  bool CanFetch(size_t size) const {
    const int64_t end = fetch_end_ < begin_ + kRoom ? fetch_end_ : begin_ + kRoom;
    return static_cast<size_t>(end - fetched_) >= size;
  }
  // Returns fetch(i), which prefetches rows i and i + 1 of the next `size` rows, for even i.
  auto FetchPairs(size_t size) {
    const auto end = fetched_ + static_cast<int64_t>(size) + call_.rows_far;
    const int64_t far = end <= fetch_end_ ? call_.rows_far : 0;
    const std::byte* const codes = call_.table + begin_byte_;
    const int64_t* const rows = call_.rows + fetched_;
    const std::byte** const at = at_ + (fetched_ - begin_);
    const size_t row_bytes = call_.row_bytes;
    const size_t bytes = bytes_;
    return [=](size_t i) __attribute__((always_inline)) {
      if (far > 0) {
        const int64_t* const later = rows + far;
        FetchRow<kSecondCache>(codes + static_cast<size_t>(later[i]) * row_bytes, bytes);
        FetchRow<kSecondCache>(codes + static_cast<size_t>(later[i + 1]) * row_bytes, bytes);
      }
      at[i] = codes + static_cast<size_t>(rows[i]) * row_bytes;
      FetchRow<kFirstCache>(at[i], bytes);
      at[i + 1] = codes + static_cast<size_t>(rows[i + 1]) * row_bytes;
      FetchRow<kFirstCache>(at[i + 1], bytes);
    };
  }
  void AddFetched(size_t size) { fetched_ += static_cast<int64_t>(size); }

 private:
  static constexpr int64_t kRoom = 16 * kGroupRows;
  // Rows prefetched into the first-level cache ahead of reading headers. More would fill it.
  static constexpr int64_t kRowsAhead = kLines == 2 ? 4 * kHeaderRows : kHeaderRows;
  // Distance to the ids that this thread checks next, prefetched into the second-level cache.
  static constexpr int64_t kIdsAhead = 2048;

  // Chooses a unit that fits scales of this exponent, up to twice and down to an eighth of them.
  void SetExponent(uint32_t exponent) {
    exponent_ = exponent < 4 ? 1 : exponent > kExponentMax + 3 ? kExponentMax : exponent - 3;
  }

  // Also prefetches the header if it is near the shard's columns, perhaps on another cache line.
  template <int kCache>
  [[gnu::always_inline]] static inline void FetchRow(const std::byte* codes, size_t bytes) {
    const std::byte* const begin = codes - kScaleAndBiasBytes;
    if constexpr (kLines == 0) {
      Prefetch<kCache>(begin, codes + bytes);
    } else {
      __builtin_prefetch(begin, 0, kCache);
      if constexpr (kLines > 2) __builtin_prefetch(begin + kLineBytes, 0, kCache);
      __builtin_prefetch(codes + bytes - 1, 0, kCache);
    }
  }

  void Fetch(int64_t to) {
    to = to < fetch_end_ ? to : fetch_end_;
    const std::byte* const codes = call_.table + begin_byte_;
    for (; fetched_ < to; ++fetched_) {
      const std::byte* const row =
          codes + static_cast<size_t>(call_.rows[fetched_]) * call_.row_bytes;
      FetchRow<kFirstCache>(row, bytes_);
      at_[fetched_ - begin_] = row;
    }
  }

  void MoveUp(int64_t begin) {
    if (fetched_ - begin_ < kRoom - 4 * kGroupRows) return;
    const int64_t moved = (begin - begin_) / kHeaderRows * kHeaderRows;
    const auto size = static_cast<size_t>(fetched_ - begin_ - moved + kHeaderRows);
    __builtin_memmove(at_, at_ + moved, size * sizeof(at_[0]));
    __builtin_memmove(multipliers_, multipliers_ + moved, size * sizeof(multipliers_[0]));
    __builtin_memmove(biases_, biases_ + moved, size * sizeof(biases_[0]));
    begin_ += moved;
  }

  const BagSumsCall& call_;
  const size_t begin_byte_;  // Offset of the first code in a row.
  const size_t bytes_;       // Size of a row's codes.
  uint32_t exponent_ = 1;    // Exponent of the smallest scale that fits `multipliers_`.

  // Positions in the call's rows. Rows begin_ .. fetched_ are in `at_` and prefetched. Those up to
  // read_ are in `multipliers_` and `biases_`; the bias is NaN if the row's scale does not fit.
  int64_t begin_;
  const int64_t end_;
  const int64_t fetch_end_;
  int64_t fetched_;
  int64_t read_;
  const int64_t ids_ahead_;
  const std::byte* at_[kRoom + kHeaderRows];
  int16_t multipliers_[kRoom + kHeaderRows];
  float biases_[kRoom + kHeaderRows];
};

}  // namespace
}  // namespace embershard
