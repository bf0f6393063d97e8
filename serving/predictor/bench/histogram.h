// Latencies: counts per bucket, buckets as wide as 1/128 of the value.

#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
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
    ++counts_[value >> ShiftOf(value) << ShiftOf(value)];
    ++count_;
    max_ = std::max(max_, value);
  }

  void Merge(const Histogram& other) {
    for (const auto& [low, count] : other.counts_) counts_[low] += count;
    count_ += other.count_;
    max_ = std::max(max_, other.max_);
  }

  uint64_t count() const { return count_; }
  int64_t max() const { return max_; }  // Exact. 0 when empty.

  // Those that are not empty, smallest first. The last one's `high` is max().
  std::vector<Bucket> Buckets() const {
    std::vector<Bucket> filled;
    for (const auto& [low, count] : counts_) {
      filled.push_back(
          {.low = low, .high = low + (int64_t{1} << ShiftOf(low)) - 1, .count = count});
    }
    if (!filled.empty()) filled.back().high = max_;
    return filled;
  }

 private:
  static constexpr int kPrecisionBits = 8;  // Leading bits of a value that tell its bucket.

  // How many low bits of a value its bucket leaves out.
  static int ShiftOf(int64_t value) {
    return std::max(
        0, static_cast<int>(std::bit_width(static_cast<uint64_t>(value))) - kPrecisionBits);
  }

  std::map<int64_t, uint64_t> counts_;  // By the smallest value of a bucket.
  uint64_t count_ = 0;
  int64_t max_ = 0;
};

}  // namespace embershard::bench
