#include "telemetry/bucketed_histogram.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <thread>
#include <vector>

namespace embershard {
namespace {

using Counts = std::vector<uint64_t>;

TEST(BucketedHistogram, CountsAValueAtABoundInThatBoundsBucket) {
  BucketedHistogram histogram({10, 20, 50}, 10);
  for (const uint64_t value : {0, 9, 10, 11, 20, 21, 50, 51, 1000}) histogram.Add(value);
  const HistogramSnapshot read = histogram.Read();
  EXPECT_EQ(read.bounds, (std::vector<double>{1, 2, 5}));
  EXPECT_EQ(read.counts, (Counts{3, 2, 2, 2}));
  EXPECT_EQ(read.sum, 117.2);
}

TEST(BucketedHistogram, IsEmptyAtFirst) {
  const HistogramSnapshot read = BucketedHistogram({1}, 1).Read();
  EXPECT_EQ(read.counts, (Counts{0, 0}));
  EXPECT_EQ(read.sum, 0);
}

TEST(BucketedHistogram, OfSecondsSpansFiftyMicrosecondsToTenSeconds) {
  BucketedHistogram histogram = BucketedHistogram::OfSeconds();
  EXPECT_EQ(histogram.Read().bounds,
            (std::vector<double>{5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1,
                                 0.2, 0.5, 1, 2, 5, 10}));
  for (const uint64_t nanoseconds : {50'000ULL, 50'001ULL, 10'000'000'000ULL, 10'000'000'001ULL}) {
    histogram.Add(nanoseconds);
  }
  const HistogramSnapshot read = histogram.Read();
  EXPECT_EQ(read.counts, (Counts{1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(read.sum, 20.000100002);
}

TEST(BucketedHistogram, OfDifferencesHasThreeBucketsPerFactorOfTen) {
  EXPECT_EQ(BucketedHistogram::OfDifferences().Read().bounds,
            (std::vector<double>{1e-7, 2e-7, 5e-7, 1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5,
                                 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2,
                                 0.1,  0.2,  0.5,  1,    2,    5,    10}));
}

TEST(BucketedHistogram, OfCountsHasPowersOfTwo) {
  BucketedHistogram histogram = BucketedHistogram::OfCounts(3);
  for (const uint64_t value : {0, 1, 2, 3, 4, 5, 8, 9}) histogram.Add(value);
  const HistogramSnapshot read = histogram.Read();
  EXPECT_EQ(read.bounds, (std::vector<double>{1, 2, 4, 8}));
  EXPECT_EQ(read.counts, (Counts{2, 1, 2, 2, 1}));
  EXPECT_EQ(read.sum, 32);
}

TEST(BucketedHistogram, OfPercentShowsParts) {
  BucketedHistogram histogram = BucketedHistogram::OfPercent(300);
  for (const uint64_t part : {3, 4, 90, 91, 300, 301}) histogram.Add(100 * part);
  const HistogramSnapshot read = histogram.Read();
  EXPECT_EQ(read.bounds, (std::vector<double>{0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7,
                                              0.8, 0.9, 1}));
  EXPECT_EQ(read.counts, (Counts{1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(read.sum, 789.0 / 300);
}

TEST(BucketedHistogram, LosesNothingUnderManyThreads) {
  BucketedHistogram histogram({1, 2, 3}, 1);
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&histogram, t] {
      for (int i = 0; i < 5000; ++i) histogram.Add(t + 1);
    });
  }
  for (int i = 0; i < 100; ++i) {
    const Counts counts = histogram.Read().counts;
    EXPECT_LE(std::accumulate(counts.begin(), counts.end(), uint64_t{0}), 20000U);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(histogram.Read().counts, (Counts{5000, 5000, 5000, 5000}));
  EXPECT_EQ(histogram.Read().sum, 50000);
}

}  // namespace
}  // namespace embershard
