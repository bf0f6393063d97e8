// Latencies in fixed memory: counts per bucket, buckets as wide as 1/128 of the value.

#pragma once

#include <array>
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

  void Add(int64_t value);
  void Merge(const Histogram& other);

  uint64_t count() const { return count_; }
  int64_t max() const { return max_; }  // Exact. 0 when empty.

  // Those that are not empty, smallest first. The last one's `high` is max().
  std::vector<Bucket> Buckets() const;

 private:
  static constexpr int kPrecisionBits = 8;  // Leading bits of a value that tell its bucket.
  static constexpr int kValueBits = 44;
  static constexpr size_t kBuckets =
      (size_t{1} << kPrecisionBits) +
      (kValueBits - kPrecisionBits) * (size_t{1} << (kPrecisionBits - 1));

  static size_t IndexOf(int64_t value);
  static Bucket BucketAt(size_t index);

  std::array<uint64_t, kBuckets> counts_{};
  uint64_t count_ = 0;
  int64_t max_ = 0;
};

}  // namespace embershard::bench
