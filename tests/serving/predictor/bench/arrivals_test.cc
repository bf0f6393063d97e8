#include "bench/arrivals.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace embershard::bench {
namespace {

// Gaps in seconds.
std::vector<double> Gaps(double rate, uint64_t seed, size_t count) {
  PoissonArrivals arrivals(rate, seed);
  std::vector<double> gaps;
  std::chrono::nanoseconds last{0};
  for (size_t i = 0; i < count; ++i) {
    const std::chrono::nanoseconds next = arrivals.Next();
    gaps.push_back(std::chrono::duration<double>(next - last).count());
    last = next;
  }
  return gaps;
}

TEST(PoissonArrivals, ComeAtTheRateAsked) {
  const std::vector<double> gaps = Gaps(250, 1, 100'000);
  double sum = 0;
  for (const double gap : gaps) sum += gap;
  // The sum's deviation is sqrt(100,000) gaps: 0.3 %.
  EXPECT_NEAR(sum / 100'000, 1.0 / 250, 0.015 / 250);
}

// Kolmogorov and Smirnov: the largest distance of two distributions exceeds 1.95 / sqrt(n)
// once in a thousand seeds; this seed is one of the others, for ever.
TEST(PoissonArrivals, HaveExponentialGaps) {
  constexpr size_t kCount = 50'000;
  std::vector<double> gaps = Gaps(1000, 2, kCount);
  std::sort(gaps.begin(), gaps.end());
  double distance = 0;
  for (size_t i = 0; i < kCount; ++i) {
    const double expected = 1 - std::exp(-gaps[i] * 1000);
    distance = std::max({distance, std::abs(expected - static_cast<double>(i) / kCount),
                         std::abs(expected - static_cast<double>(i + 1) / kCount)});
  }
  EXPECT_LT(distance, 1.95 / std::sqrt(kCount));
}

TEST(PoissonArrivals, HaveGapsThatDoNotFollowFromTheOneBefore) {
  const std::vector<double> gaps = Gaps(1, 3, 50'000);  // Mean and deviation 1.
  double product = 0;
  for (size_t i = 1; i < gaps.size(); ++i) product += (gaps[i] - 1) * (gaps[i - 1] - 1);
  EXPECT_NEAR(product / 50'000, 0, 4 / std::sqrt(50'000));
}

TEST(PoissonArrivals, RepeatForASeedAndDifferForOthers) {
  EXPECT_EQ(Gaps(10, 4, 100), Gaps(10, 4, 100));
  EXPECT_NE(Gaps(10, 4, 100), Gaps(10, 5, 100));
}

TEST(RecordedArrivals, ComeAgainAPeriodLater) {
  using std::chrono::nanoseconds;
  const std::vector<nanoseconds> times = {nanoseconds(0), nanoseconds(7), nanoseconds(7)};
  RecordedArrivals all(&times, nanoseconds(10), 0, 1);
  for (const int64_t expected : {0, 7, 7, 10, 17, 17, 20}) EXPECT_EQ(all.Next().count(), expected);
}

TEST(RecordedArrivals, AreSharedByThoseWhoTakeEveryOther) {
  using std::chrono::nanoseconds;
  const std::vector<nanoseconds> times = {nanoseconds(0), nanoseconds(4), nanoseconds(9)};
  RecordedArrivals even(&times, nanoseconds(10), 0, 2);
  RecordedArrivals odd(&times, nanoseconds(10), 1, 2);
  for (const int64_t expected : {0, 9, 14, 20}) EXPECT_EQ(even.Next().count(), expected);
  for (const int64_t expected : {4, 10, 19, 24}) EXPECT_EQ(odd.Next().count(), expected);
}

}  // namespace
}  // namespace embershard::bench
