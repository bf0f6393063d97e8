#include "batching/batch_costs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace embershard {
namespace {

using std::chrono::microseconds;

const Clock::time_point kNow{std::chrono::hours(1)};
constexpr Clock::time_point kEver = Clock::time_point::min();

double MicrosecondsOf(const BatchCosts& costs, const BatchSize& size,
                      Clock::time_point since = kEver) {
  return static_cast<double>(costs.Predict(size, since).count()) / 1e3;
}

TEST(BatchCosts, KnowNothingAtFirstAndTheFirstBatchFromThenOn) {
  BatchCosts costs;
  EXPECT_EQ(costs.Predict({1, 2, 3}, kEver).count(), 0);
  costs.Learn({1, 2, 3}, microseconds(500), kNow);
  EXPECT_DOUBLE_EQ(MicrosecondsOf(costs, {1, 2, 3}), 500);
}

TEST(BatchCosts, ComeNearTheNinetiethPercentile) {
  for (const bool skewed : {false, true}) {
    BatchCosts costs;
    std::mt19937_64 random(5);
    std::vector<double> seen;
    double sum = 0;
    for (int i = 0; i < 4000; ++i) {
      // Uniform from 100 to 200 us; or one batch in four a hundred times as long.
      auto took = microseconds(100 + random() % 100);
      if (skewed && random() % 4 == 0) took *= 100;
      costs.Learn({4, 100, 1000}, took, kNow);
      seen.push_back(static_cast<double>(took.count()));
      if (i >= 2000) sum += MicrosecondsOf(costs, {4, 100, 1000});
    }
    std::ranges::sort(seen);
    const double p80 = seen[seen.size() * 8 / 10];
    const double p97 = seen[seen.size() * 97 / 100];
    EXPECT_GT(sum / 2000, p80) << skewed;
    EXPECT_LT(sum / 2000, p97 * 1.1) << skewed;
  }
}

TEST(BatchCosts, FollowAModelThatBecomesTenTimesSlowerWithinThirtyBatches) {
  BatchCosts costs;
  for (int i = 0; i < 100; ++i) costs.Learn({1, 1, 1}, microseconds(100), kNow);
  for (int i = 0; i < 30; ++i) costs.Learn({1, 1, 1}, microseconds(1000), kNow);
  EXPECT_GT(MicrosecondsOf(costs, {1, 1, 1}), 900);
}

TEST(BatchCosts, TellBucketsOfRequestsExamplesAndIdsApart) {
  BatchCosts costs;
  costs.Learn({1, 8, 100}, microseconds(10), kNow);
  costs.Learn({2, 8, 100}, microseconds(20), kNow);
  costs.Learn({1, 16, 100}, microseconds(40), kNow);
  costs.Learn({1, 8, 200}, microseconds(80), kNow);
  EXPECT_DOUBLE_EQ(MicrosecondsOf(costs, {1, 15, 127}), 10);  // The same powers of two.
  EXPECT_DOUBLE_EQ(MicrosecondsOf(costs, {3, 8, 64}), 20);
  EXPECT_DOUBLE_EQ(MicrosecondsOf(costs, {1, 31, 100}), 40);
  EXPECT_DOUBLE_EQ(MicrosecondsOf(costs, {1, 8, 255}), 80);
}

TEST(BatchCosts, OfASizeNeverRunAreThoseOfAsManyExamplesOrIds) {
  BatchCosts costs;
  costs.Learn({1, 8, 4}, microseconds(10), kNow);
  costs.Learn({1, 1, 100}, microseconds(40), kNow);
  EXPECT_DOUBLE_EQ(MicrosecondsOf(costs, {4, 8, 4}), 10);
  EXPECT_DOUBLE_EQ(MicrosecondsOf(costs, {4, 8, 100}), 40);
  // The cost of the next smaller size.
  EXPECT_DOUBLE_EQ(MicrosecondsOf(costs, {4, 500, 5000}), 40);
  EXPECT_DOUBLE_EQ(MicrosecondsOf(costs, {1, 0, 0}), 0);
}

TEST(BatchCosts, OfAnExampleAreTheMedianOfBatchesOfSuchSizes) {
  BatchCosts costs;
  EXPECT_EQ(costs.PerExample(100), 0);
  std::mt19937_64 random(5);
  for (int i = 0; i < 4000; ++i) {
    // From 10 to 20 us an example; one batch in four takes a hundred times as long.
    const uint64_t examples = 64 + random() % 64;
    auto took = microseconds(examples * (10 + random() % 10));
    if (random() % 4 == 0) took *= 100;
    costs.Learn({1 + random() % 8, examples, 1000}, took, kNow);
  }
  EXPECT_NEAR(costs.PerExample(100), 16'000, 4'000);
  EXPECT_EQ(costs.PerExample(500), costs.PerExample(100));  // The cost of the next smaller size.
  EXPECT_EQ(costs.PerExample(127, kNow), costs.PerExample(64));
  EXPECT_EQ(costs.PerExample(500, kNow), 0);
  EXPECT_EQ(costs.PerExample(100, kNow + microseconds(1)), 0);
}

TEST(BatchCosts, ForgetWhatHasNotBeenSeenOfLate) {
  BatchCosts costs;
  costs.Learn({64, 512, 256}, microseconds(90000), kNow);
  const Clock::time_point later = kNow + BatchCosts::kMemory;
  costs.Learn({1, 8, 4}, microseconds(10), later);
  EXPECT_DOUBLE_EQ(MicrosecondsOf(costs, {64, 512, 256}, kNow), 90000);
  // The cost of the next smaller size.
  EXPECT_DOUBLE_EQ(MicrosecondsOf(costs, {64, 512, 256}, later), 10);
  EXPECT_DOUBLE_EQ(MicrosecondsOf(costs, {64, 512, 256}), 90000);
  // A size that comes back after kMemory is learned from scratch.
  costs.Learn({64, 512, 256}, microseconds(700), later + microseconds(1));
  EXPECT_DOUBLE_EQ(MicrosecondsOf(costs, {64, 512, 256}), 700);
}

TEST(BatchCosts, TakeSizesBeyondTheLastBucket) {
  BatchCosts costs;
  costs.Learn({1ULL << 40, 1ULL << 50, 1ULL << 60}, microseconds(7), kNow);
  EXPECT_DOUBLE_EQ(MicrosecondsOf(costs, {1ULL << 60, 1ULL << 61, 1ULL << 62}), 7);
}

}  // namespace
}  // namespace embershard
