#include "telemetry/bucketed_histogram.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <functional>
#include <utility>

namespace embershard {

BucketedHistogram::BucketedHistogram(std::vector<uint64_t> bounds, double per_unit)
    : bounds_(std::move(bounds)), per_unit_(per_unit), counts_(bounds_.size() + 1) {
  assert(std::is_sorted(bounds_.begin(), bounds_.end(), std::less_equal<>()));
  assert(per_unit_ > 0);
}

BucketedHistogram BucketedHistogram::OfSeconds() {
  std::vector<uint64_t> bounds = {50,      100,       200,       500,       1'000,     2'000,
                                  5'000,   10'000,    20'000,    50'000,    100'000,   200'000,
                                  500'000, 1'000'000, 2'000'000, 5'000'000, 10'000'000};  // us
  for (uint64_t& bound : bounds) bound *= 1000;
  return BucketedHistogram(std::move(bounds), 1e9);
}

BucketedHistogram BucketedHistogram::OfDifferences() {
  std::vector<uint64_t> bounds;
  for (uint64_t power = 100; power < 10'000'000'000; power *= 10) {
    bounds.insert(bounds.end(), {power, 2 * power, 5 * power});
  }
  bounds.push_back(10'000'000'000);
  return BucketedHistogram(std::move(bounds), 1e9);
}

uint64_t BucketedHistogram::Difference(double difference) {
  constexpr double kLargest = 1e6;  // Keeps sums from overflowing.
  return static_cast<uint64_t>(std::min(std::abs(difference), kLargest) * 1e9);
}

BucketedHistogram BucketedHistogram::OfCounts(int last_power) {
  std::vector<uint64_t> bounds;
  for (int power = 0; power <= last_power; ++power) bounds.push_back(uint64_t{1} << power);
  return BucketedHistogram(std::move(bounds), 1);
}

BucketedHistogram BucketedHistogram::OfPercent(uint64_t whole) {
  std::vector<uint64_t> bounds = {1, 2, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100};
  for (uint64_t& bound : bounds) bound *= whole;
  return BucketedHistogram(std::move(bounds), 100 * static_cast<double>(whole));
}

HistogramSnapshot BucketedHistogram::Read() const {
  HistogramSnapshot read;
  for (const uint64_t bound : bounds_) {
    read.bounds.push_back(static_cast<double>(bound) / per_unit_);
  }
  for (const auto& count : counts_) read.counts.push_back(count.load(std::memory_order_relaxed));
  read.sum = static_cast<double>(sum_.load(std::memory_order_relaxed)) / per_unit_;
  return read;
}

}  // namespace embershard
