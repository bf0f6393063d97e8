#include "batching/batching_options.h"

#include <gtest/gtest.h>

namespace embershard {
namespace {

constexpr Limits kSmallPackage = {.max_examples = 8, .max_ids = 20};
constexpr Limits kLargePackage = {.max_examples = 100000, .max_ids = 1 << 24};

TEST(BatchingOptions, ByDefaultABatchHolds1024ExamplesAndTheQueueEightTimes4096) {
  const auto options = CompleteOptions({}, kSmallPackage);
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->max_request_examples, 8U);
  EXPECT_EQ(options->max_request_ids, 20U);
  EXPECT_EQ(options->max_batch_examples, 1024U);
  EXPECT_EQ(options->merge_examples, 256U);
  EXPECT_EQ(options->max_batch_ids, 1048576U);
  EXPECT_EQ(options->max_queued_examples, 32768U);
  EXPECT_EQ(options->max_queued_ids, 8388608U);
  EXPECT_EQ(options->max_queued_bytes, 268435456U);
}

TEST(BatchingOptions, ByDefaultARequestHoldsWhateverThePackageAllowsHoweverSmallABatch) {
  const auto options = CompleteOptions({}, kLargePackage);
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->max_request_examples, 100000U);
  EXPECT_EQ(options->max_request_ids, 16777216U);
  EXPECT_EQ(options->max_batch_examples, 1024U);
  EXPECT_EQ(options->max_batch_ids, 1048576U);
  EXPECT_EQ(options->max_queued_examples, 800000U);
  EXPECT_EQ(options->max_queued_ids, 134217728U);
}

TEST(BatchingOptions, WithSeveralSlotsABatchHoldsNoMoreThanIsMerged) {
  auto options = CompleteOptions({.slots = 2}, kLargePackage);
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->max_batch_examples, 256U);
  EXPECT_EQ(options->max_request_examples, 100000U);
  options = CompleteOptions({.merge_examples = 700, .slots = 2}, kLargePackage);
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->max_batch_examples, 700U);
  options = CompleteOptions({.merge_examples = 1, .slots = 2}, kLargePackage);
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->max_batch_examples, 256U);
  EXPECT_EQ(options->merge_examples, 1U);
  options = CompleteOptions({.max_batch_examples = 1024, .slots = 2}, kLargePackage);
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->max_batch_examples, 1024U);
  EXPECT_EQ(options->merge_examples, 256U);
}

TEST(BatchingOptions, KeepWhatWasAskedFor) {
  const BatchingOptions requested = {.max_request_examples = 7,
                                     .max_request_ids = 8,
                                     .max_batch_examples = 10,
                                     .max_batch_ids = 11,
                                     .merge_examples = 9,
                                     .max_queued_examples = 12,
                                     .max_queued_ids = 13,
                                     .max_queued_bytes = 14};
  const auto options = CompleteOptions(requested, kLargePackage);
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->max_request_examples, 7U);
  EXPECT_EQ(options->max_request_ids, 8U);
  EXPECT_EQ(options->max_batch_examples, 10U);
  EXPECT_EQ(options->max_batch_ids, 11U);
  EXPECT_EQ(options->merge_examples, 9U);
  EXPECT_EQ(options->max_queued_examples, 12U);
  EXPECT_EQ(options->max_queued_ids, 13U);
  EXPECT_EQ(options->max_queued_bytes, 14U);
}

TEST(BatchingOptions, NoMoreIsMergedThanABatchHolds) {
  auto options = CompleteOptions({.max_batch_examples = 100}, kLargePackage);
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->merge_examples, 100U);
  options = CompleteOptions({.max_batch_examples = 100, .merge_examples = 101}, kLargePackage);
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->merge_examples, 100U);
  options = CompleteOptions({.merge_examples = 2000}, kLargePackage);
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->merge_examples, 2000U);
  EXPECT_EQ(options->max_batch_examples, 2000U);
}

TEST(BatchingOptions, AShortQueueShortensTheDefaultBatchAndTheDefaultRequest) {
  const auto options =
      CompleteOptions({.max_queued_examples = 100, .max_queued_ids = 200}, kLargePackage);
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->max_batch_examples, 100U);
  EXPECT_EQ(options->max_batch_ids, 200U);
  EXPECT_EQ(options->max_request_examples, 100U);
  EXPECT_EQ(options->max_request_ids, 200U);
}

TEST(BatchingOptions, RefuseAQueueShorterThanTheBatchOrTheRequestThatWasAskedFor) {
  auto refused =
      CompleteOptions({.max_batch_examples = 101, .max_queued_examples = 100}, kSmallPackage);
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.status().message(),
            "max_queued_examples: expected at least 101 (max_batch_examples), got 100");
  refused = CompleteOptions({.max_batch_ids = 7, .max_queued_ids = 6}, kSmallPackage);
  EXPECT_EQ(refused.status().message(),
            "max_queued_ids: expected at least 7 (max_batch_ids), got 6");
  refused = CompleteOptions({.max_request_ids = 9, .max_queued_ids = 8}, kSmallPackage);
  EXPECT_EQ(refused.status().message(),
            "max_queued_ids: expected at least 9 (max_request_ids), got 8");
  refused = CompleteOptions({.max_queued_bytes = 0}, kSmallPackage);
  EXPECT_EQ(refused.status().message(), "max_queued_bytes: expected at least 1, got 0");
}

}  // namespace
}  // namespace embershard
