// Latencies in fixed memory: counts per bucket, buckets as wide as 1/128 of the value.

#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace embershard::bench {

// Values of 0 .. 2^44 - 1 (as nanoseconds: 4.8 hours); larger and smaller ones are cut.
// Buckets:
//
//   0 .. 255            one a value
//   2^k .. 2^(k+1) - 1  128 of equal width, for each k from 8 to 43
//
// Not thread-safe.
class Histogram {
 public:
  static constexpr int64_t kMaxValue = (int64_t{1} << 44) - 1;

  struct Bucket {
    int64_t low;   // Smallest value that falls into it.
    int64_t high;  // Largest.
    uint64_t count;
  };

  void Add(int64_t value) {
    value = std::clamp<int64_t>(value, 0, kMaxValue);
    ++counts_[IndexOf(value)];
    ++count_;
    max_ = std::max(max_, value);
  }

  void Merge(const Histogram& other) {
    for (size_t i = 0; i < kBuckets; ++i) counts_[i] += other.counts_[i];
    count_ += other.count_;
    max_ = std::max(max_, other.max_);
  }

  uint64_t count() const { return count_; }
  int64_t max() const { return max_; }  // Exact. 0 when empty.

  // Those that are not empty, smallest first. The last one's `high` is max().
  std::vector<Bucket> Buckets() const {
    std::vector<Bucket> filled;
    for (size_t i = 0; i < kBuckets; ++i) {
      if (counts_[i] == 0) continue;
      filled.push_back(BucketAt(i));
      filled.back().count = counts_[i];
    }
    if (!filled.empty()) filled.back().high = max_;
    return filled;
  }

 private:
  static constexpr int kPrecisionBits = 8;  // Leading bits of a value that tell its bucket.
  static constexpr int kValueBits = 44;
  static constexpr size_t kBuckets =
      (size_t{1} << kPrecisionBits) +
      (kValueBits - kPrecisionBits) * (size_t{1} << (kPrecisionBits - 1));

  static size_t IndexOf(int64_t value) {
    const int bits = std::bit_width(static_cast<uint64_t>(value));
    if (bits <= kPrecisionBits) return static_cast<size_t>(value);
    const int shift = bits - kPrecisionBits;
    constexpr size_t half = size_t{1} << (kPrecisionBits - 1);
    const size_t leading = static_cast<size_t>(value >> shift);  // half .. 2 * half - 1
    return 2 * half + static_cast<size_t>(shift - 1) * half + (leading - half);
  }

  static Bucket BucketAt(size_t index) {
    constexpr size_t half = size_t{1} << (kPrecisionBits - 1);
    if (index < 2 * half) {
      const auto value = static_cast<int64_t>(index);
      return {.low = value, .high = value, .count = 0};
    }
    const size_t shift = (index - 2 * half) / half + 1;
    const auto leading = static_cast<int64_t>((index - 2 * half) % half + half);
    return {.low = leading << shift, .high = ((leading + 1) << shift) - 1, .count = 0};
  }

  std::array<uint64_t, kBuckets> counts_{};
  uint64_t count_ = 0;
  int64_t max_ = 0;
};

}  // namespace embershard::bench
