#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "bench/tally.h"

namespace embershard::bench {
namespace {

std::vector<Histogram::Bucket> BucketsOf(std::initializer_list<int64_t> values) {
  Histogram histogram;
  for (const int64_t value : values) histogram.Add(value);
  return histogram.Buckets();
}

// The bucket of one value, seen beside the largest value so that its end is not cut.
Histogram::Bucket BucketOf(int64_t value) {
  return BucketsOf({value, Histogram::kMaxValue}).front();
}

TEST(Histogram, IsEmptyAtFirst) {
  const Histogram histogram;
  EXPECT_EQ(histogram.count(), 0u);
  EXPECT_EQ(histogram.max(), 0);
  EXPECT_TRUE(histogram.Buckets().empty());
}

TEST(Histogram, KeepsSmallValuesExactly) {
  for (const int64_t value : {0, 1, 127, 128, 255}) {
    EXPECT_EQ(BucketOf(value).low, value);
    EXPECT_EQ(BucketOf(value).high, value);
  }
}

TEST(Histogram, CutsLargerValuesIntoBucketsByHand) {
  EXPECT_EQ(BucketOf(256).low, 256);  // 256..511 in steps of 2.
  EXPECT_EQ(BucketOf(256).high, 257);
  EXPECT_EQ(BucketOf(511).low, 510);
  EXPECT_EQ(BucketOf(511).high, 511);
  EXPECT_EQ(BucketOf(512).high, 515);  // 512..1023 in steps of 4.
  EXPECT_EQ(BucketOf(int64_t{1} << 40).low, int64_t{1} << 40);
  EXPECT_EQ(BucketOf(int64_t{1} << 40).high, (int64_t{1} << 40) + (int64_t{1} << 33) - 1);
}

TEST(Histogram, HoldsEachValueInABucketOfAtMostA128thOfIt) {
  int64_t end = 0;  // End of the previous bucket.
  for (int64_t value = 1; value < Histogram::kMaxValue / 2; value += value / 100 + 1) {
    const Histogram::Bucket bucket = BucketOf(value);
    EXPECT_LE(bucket.low, value);
    EXPECT_GE(bucket.high, value);
    EXPECT_LE((bucket.high - bucket.low) * 128, value);
    EXPECT_GE(bucket.low, end);
    end = bucket.low;
  }
}

TEST(Histogram, ReportsTheLargestValueExactly) {
  const auto buckets = BucketsOf({5, 1'000'001});
  EXPECT_EQ(buckets.back().high, 1'000'001);
}

TEST(Histogram, CutsWhatIsOutOfRange) {
  const auto buckets = BucketsOf({-7, Histogram::kMaxValue + 1});
  ASSERT_EQ(buckets.size(), 2u);
  EXPECT_EQ(buckets[0].high, 0);
  EXPECT_EQ(buckets[1].high, Histogram::kMaxValue);
}

TEST(Histogram, MergesCountsAndTheLargest) {
  Histogram first, second;
  first.Add(7);
  first.Add(1000);
  second.Add(7);
  second.Add(2000);
  first.Merge(second);
  EXPECT_EQ(first.count(), 4u);
  EXPECT_EQ(first.max(), 2000);
  const auto buckets = first.Buckets();
  ASSERT_EQ(buckets.size(), 3u);
  EXPECT_EQ(buckets[0].count, 2u);
  EXPECT_EQ(buckets[2].high, 2000);
}

}  // namespace
}  // namespace embershard::bench
