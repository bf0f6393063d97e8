#include "bench/histogram.h"

#include <algorithm>
#include <bit>

namespace embershard::bench {

void Histogram::Add(int64_t value) {
  value = std::clamp<int64_t>(value, 0, kMaxValue);
  ++counts_[IndexOf(value)];
  ++count_;
  max_ = std::max(max_, value);
}

void Histogram::Merge(const Histogram& other) {
  for (size_t i = 0; i < kBuckets; ++i) counts_[i] += other.counts_[i];
  count_ += other.count_;
  max_ = std::max(max_, other.max_);
}

std::vector<Histogram::Bucket> Histogram::Buckets() const {
  std::vector<Bucket> filled;
  for (size_t i = 0; i < kBuckets; ++i) {
    if (counts_[i] == 0) continue;
    filled.push_back(BucketAt(i));
    filled.back().count = counts_[i];
  }
  if (!filled.empty()) filled.back().high = max_;
  return filled;
}

size_t Histogram::IndexOf(int64_t value) {
  const int bits = std::bit_width(static_cast<uint64_t>(value));
  if (bits <= kPrecisionBits) return static_cast<size_t>(value);
  const int shift = bits - kPrecisionBits;
  constexpr size_t half = size_t{1} << (kPrecisionBits - 1);
  const size_t leading = static_cast<size_t>(value >> shift);  // half .. 2 * half - 1
  return 2 * half + static_cast<size_t>(shift - 1) * half + (leading - half);
}

Histogram::Bucket Histogram::BucketAt(size_t index) {
  constexpr size_t half = size_t{1} << (kPrecisionBits - 1);
  if (index < 2 * half) {
    const auto value = static_cast<int64_t>(index);
    return {.low = value, .high = value, .count = 0};
  }
  const size_t shift = (index - 2 * half) / half + 1;
  const auto leading = static_cast<int64_t>((index - 2 * half) % half + half);
  return {.low = leading << shift, .high = ((leading + 1) << shift) - 1, .count = 0};
}

}  // namespace embershard::bench
