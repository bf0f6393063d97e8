// Limits of a batch and of the queue, and how requests leave the queue.

#include "batching/batch_former.h"

#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <utility>

#include "batching/batch_former_fixture.h"

namespace embershard {
namespace {

using std::chrono::milliseconds;

TEST(BatchFormer, TakesAllThatFitsOldestFirst) {
  BatchFormer former(Small());
  for (const uint32_t examples : {2U, 5U, 3U}) {
    EXPECT_EQ(Add(&former, Waiting(examples)), Admission::kAccepted);
  }
  EXPECT_EQ(Examples(former.Take(kStart).batch), (Counts{2, 5, 3}));
  EXPECT_TRUE(former.empty());
  EXPECT_TRUE(former.Take(kStart).batch.empty());
}

TEST(BatchFormer, EndsABatchAtTheBudgetOfExamples) {
  BatchFormer former(Small());
  for (const uint32_t examples : {6U, 5U, 1U}) {
    EXPECT_EQ(Add(&former, Waiting(examples)), Admission::kAccepted);
  }
  // The request of 1 example does not overtake: the one of 5 might wait for ever.
  EXPECT_EQ(Examples(former.Take(kStart).batch), Counts{6});
  EXPECT_EQ(Examples(former.Take(kStart).batch), (Counts{5, 1}));
}

TEST(BatchFormer, MergesUpToABoundBelowThatOfABatch) {
  BatchingOptions options = Small();
  options.merge_examples = 6;
  BatchFormer former(options);
  for (const uint32_t examples : {2U, 4U, 1U, 6U, 5U}) {
    ASSERT_EQ(Add(&former, Waiting(examples)), Admission::kAccepted);
  }
  EXPECT_EQ(Examples(former.Take(kStart).batch), (Counts{2, 4}));
  EXPECT_EQ(Examples(former.Take(kStart).batch), Counts{1});
  EXPECT_EQ(Examples(former.Take(kStart).batch), Counts{6});
  EXPECT_EQ(Examples(former.Take(kStart).batch), Counts{5});
}

TEST(BatchFormer, KnowsWhenQueuedRequestsFillABatch) {
  BatchingOptions options = Small();
  options.merge_examples = 6;
  BatchFormer former(options);
  EXPECT_FALSE(former.fills_batch());
  for (const auto& [examples, fills] : {std::pair(2U, false), {3U, false}, {1U, true}}) {
    ASSERT_EQ(Add(&former, Waiting(examples)), Admission::kAccepted);
    EXPECT_EQ(former.fills_batch(), fills);
  }
  former.Take(kStart);
  EXPECT_FALSE(former.fills_batch());
  const auto ids = static_cast<uint32_t>(options.max_batch_ids);
  ASSERT_EQ(Add(&former, Waiting(1, ids - 1)), Admission::kAccepted);
  EXPECT_FALSE(former.fills_batch());
  ASSERT_EQ(Add(&former, Waiting(1, 1)), Admission::kAccepted);
  EXPECT_TRUE(former.fills_batch());
}

TEST(BatchFormer, ARequestBeyondTheBoundOfMergingRunsAlone) {
  BatchingOptions options = Small();
  options.merge_examples = 3;
  BatchFormer former(options);
  for (const uint32_t examples : {10U, 1U, 9U, 0U}) {
    ASSERT_EQ(Add(&former, Waiting(examples)), Admission::kAccepted);
  }
  EXPECT_EQ(Examples(former.Take(kStart).batch), Counts{10});
  EXPECT_EQ(Examples(former.Take(kStart).batch), Counts{1});
  EXPECT_EQ(Examples(former.Take(kStart).batch), Counts{9});
  EXPECT_EQ(Examples(former.Take(kStart).batch), Counts{0});
}

TEST(BatchFormer, WhatIsNotRunLeavesTheFirstPlaceToALargeRequest) {
  BatchingOptions options = Small();
  options.merge_examples = 3;
  BatchFormer former(options);
  ASSERT_EQ(Add(&former, Waiting(2, 0, kStart + milliseconds(1))), Admission::kAccepted);
  ASSERT_EQ(Add(&former, Waiting(10)), Admission::kAccepted);
  const Due due = former.Take(kStart + milliseconds(1));
  EXPECT_EQ(Examples(due.expired), Counts{2});
  EXPECT_EQ(Examples(due.batch), Counts{10});
}

TEST(BatchFormer, ARequestWithoutExamplesTakesTheRoomOfOne) {
  BatchFormer former(Small());
  for (int i = 0; i < 12; ++i) {
    ASSERT_EQ(Add(&former, Waiting(0)), Admission::kAccepted);
  }
  EXPECT_EQ(former.Take(kStart).batch.size(), 10U);
  EXPECT_EQ(former.Take(kStart).batch.size(), 2U);
}

TEST(BatchFormer, EndsABatchAtTheBudgetOfIds) {
  BatchFormer former(Small());
  EXPECT_EQ(Add(&former, Waiting(1, 60)), Admission::kAccepted);
  EXPECT_EQ(Add(&former, Waiting(2, 40)), Admission::kAccepted);
  EXPECT_EQ(Add(&former, Waiting(3, 1)), Admission::kAccepted);
  EXPECT_EQ(Examples(former.Take(kStart).batch), (Counts{1, 2}));
  EXPECT_EQ(Examples(former.Take(kStart).batch), Counts{3});
}

TEST(BatchFormer, RefusesWhatExceedsTheQueueAndTakesWhatFillsIt) {
  BatchFormer former(Small());
  EXPECT_EQ(Add(&former, Waiting(31, 0)), Admission::kTooLarge);
  EXPECT_EQ(Add(&former, Waiting(1, 201)), Admission::kTooLarge);
  EXPECT_EQ(Add(&former, Waiting(30, 200)), Admission::kAccepted);
  EXPECT_EQ(former.queued().work.examples, 30U);
  EXPECT_EQ(former.queued().work.ids, 200U);
}

TEST(BatchFormer, AnExampleWithMoreIdsThanABatchRunsAlone) {
  BatchFormer former(Small());
  EXPECT_EQ(Add(&former, Waiting(1, 120)), Admission::kAccepted);
  EXPECT_EQ(Add(&former, Waiting(2)), Admission::kAccepted);
  EXPECT_EQ(Examples(former.Take(kStart).batch), (Counts{1, 2}));
  EXPECT_EQ(Add(&former, Waiting(1, 120)), Admission::kAccepted);
  EXPECT_EQ(Add(&former, Waiting(2, 1)), Admission::kAccepted);
  EXPECT_EQ(Examples(former.Take(kStart).batch), Counts{1});
  EXPECT_EQ(Examples(former.Take(kStart).batch), Counts{2});
}

TEST(BatchFormer, RefusesAtTheBoundOfExamplesUntilSomeHaveLeft) {
  BatchFormer former(Small());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Add(&former, Waiting(10)), Admission::kAccepted);
  EXPECT_EQ(Add(&former, Waiting(1)), Admission::kQueueFull);
  EXPECT_EQ(former.Take(kStart).batch.size(), 1U);
  EXPECT_EQ(former.queued().work.examples, 20U);
  EXPECT_EQ(Add(&former, Waiting(10)), Admission::kAccepted);
}

TEST(BatchFormer, RefusesAtTheBoundOfIds) {
  BatchFormer former(Small());
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Add(&former, Waiting(1, 100)), Admission::kAccepted);
  EXPECT_EQ(Add(&former, Waiting(1, 1)), Admission::kQueueFull);
  EXPECT_EQ(Add(&former, Waiting(1, 0)), Admission::kAccepted);
}

TEST(BatchFormer, RefusesARequestAtItsDeadline) {
  BatchFormer former(Small());
  const Clock::time_point deadline = kStart + milliseconds(5);
  EXPECT_EQ(Add(&former, Waiting(1, 0, deadline), deadline), Admission::kExpired);
  EXPECT_EQ(Add(&former, Waiting(1, 0, deadline), deadline - milliseconds(1)),
            Admission::kAccepted);
}

TEST(BatchFormer, RefusesAtTheBoundOfBytesHoweverFewIdsTheyHold) {
  const auto holding = [](uint64_t bytes) {
    auto request = Waiting(1);
    request->held_bytes = bytes;
    return request;
  };
  BatchFormer former(Small());
  EXPECT_EQ(Add(&former, holding(1001)), Admission::kTooLarge);
  EXPECT_EQ(Add(&former, holding(600)), Admission::kAccepted);
  EXPECT_EQ(Add(&former, holding(401)), Admission::kQueueFull);
  EXPECT_EQ(Add(&former, holding(400)), Admission::kAccepted);
  EXPECT_EQ(former.queued().bytes, 1000U);
  EXPECT_EQ(former.Take(kStart).batch.size(), 2U);
  EXPECT_EQ(former.queued().bytes, 0U);
  EXPECT_EQ(Add(&former, holding(1000)), Admission::kAccepted);
}

TEST(BatchFormer, NeverRunsAnExpiredRequest) {
  BatchFormer former(Small());
  EXPECT_EQ(Add(&former, Waiting(9, 0, kStart + milliseconds(5))), Admission::kAccepted);
  EXPECT_EQ(Add(&former, Waiting(2)), Admission::kAccepted);
  EXPECT_EQ(Add(&former, Waiting(4, 0, kStart + milliseconds(4))), Admission::kAccepted);
  EXPECT_EQ(Add(&former, Waiting(3, 0, kStart + milliseconds(6))), Admission::kAccepted);
  const Due due = former.Take(kStart + milliseconds(5));
  // Expired requests take no room in the batch.
  EXPECT_EQ(Examples(due.batch), (Counts{3, 2}));
  EXPECT_EQ(Examples(due.expired), (Counts{4, 9}));
  EXPECT_TRUE(former.empty());
  EXPECT_EQ(former.queued().work.examples, 0U);
}

TEST(BatchFormer, NeverRunsARequestWhoseClientCancelled) {
  BatchFormer former(Small());
  auto left = Waiting(6, 9);
  left->abandoned = [] { return true; };
  auto stays = Waiting(5);
  stays->abandoned = [] { return false; };
  EXPECT_EQ(Add(&former, std::move(left)), Admission::kAccepted);
  EXPECT_EQ(Add(&former, std::move(stays)), Admission::kAccepted);
  const Due due = former.Take(kStart);
  EXPECT_EQ(Examples(due.batch), Counts{5});
  EXPECT_EQ(Examples(due.abandoned), Counts{6});
  EXPECT_TRUE(due.expired.empty());
  EXPECT_EQ(former.queued().work.ids, 0U);
  EXPECT_EQ(former.queued().requests, 0U);
}

TEST(BatchFormer, TakesARequestThatIsBothLateAndLeftAsLate) {
  BatchFormer former(Small());
  auto both = Waiting(6, 9, kStart + milliseconds(1));
  both->abandoned = [] { return true; };
  EXPECT_EQ(Add(&former, std::move(both)), Admission::kAccepted);
  EXPECT_EQ(former.queued().requests, 1U);
  const Due due = former.Take(kStart + milliseconds(1));
  EXPECT_EQ(Examples(due.expired), Counts{6});
  EXPECT_TRUE(due.abandoned.empty());
}

TEST(BatchFormer, LooksAtNothingBehindTheBatch) {
  BatchFormer former(Small());
  int asked = 0;
  for (const uint32_t examples : {6U, 5U, 1U}) {
    auto request = Waiting(examples);
    request->abandoned = [&asked] { return ++asked > 1; };
    EXPECT_EQ(Add(&former, std::move(request)), Admission::kAccepted);
  }
  EXPECT_EQ(Examples(former.Take(kStart).batch), Counts{6});
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(Examples(former.Take(kStart).abandoned), (Counts{5, 1}));
  EXPECT_EQ(asked, 3);
}

TEST(BatchFormer, GivesTheRoomOfAnExpiredRequestBackAtOnce) {
  BatchFormer former(Small());
  EXPECT_EQ(Add(&former, Waiting(10)), Admission::kAccepted);
  EXPECT_EQ(Add(&former, Waiting(8, 7, kStart + milliseconds(1))), Admission::kAccepted);
  EXPECT_EQ(Add(&former, Waiting(2, 5, kStart + milliseconds(2))), Admission::kAccepted);
  EXPECT_EQ(former.TakeExpired(kStart), nullptr);
  EXPECT_EQ(former.TakeExpired(kStart + milliseconds(1))->num_examples, 8U);
  EXPECT_EQ(former.TakeExpired(kStart + milliseconds(1)), nullptr);
  EXPECT_EQ(former.queued().work.examples, 12U);
  EXPECT_EQ(former.queued().work.ids, 5U);
}

TEST(BatchFormer, GivesTheRoomOfOneThatIsTakenBackAtOnce) {
  BatchFormer former(Small());
  auto request = Waiting(8, 7);
  request->held_bytes = 600;
  const Request& middle = *request;
  EXPECT_EQ(Add(&former, Waiting(1)), Admission::kAccepted);
  EXPECT_EQ(Add(&former, std::move(request)), Admission::kAccepted);
  EXPECT_EQ(Add(&former, Waiting(3)), Admission::kAccepted);
  EXPECT_EQ(former.Take(middle)->num_examples, 8U);
  EXPECT_EQ(former.queued().work.examples, 4U);
  EXPECT_EQ(former.queued().bytes, 0U);
  EXPECT_EQ(former.queued().requests, 2U);
  EXPECT_EQ(Examples(former.Take(kStart).batch), (Counts{1, 3}));
}

TEST(BatchFormer, OutOfMemoryRunsWhatItHasTakenAndThenGivesUpTheOldest) {
  BatchFormer former(Small());
  auto bad = Waiting(2, 3);
  bad->abandoned = []() -> bool { throw std::bad_alloc(); };
  EXPECT_EQ(Add(&former, Waiting(1)), Admission::kAccepted);
  EXPECT_EQ(Add(&former, std::move(bad)), Admission::kAccepted);
  EXPECT_EQ(Add(&former, Waiting(4)), Admission::kAccepted);
  const Due first = former.Take(kStart);
  EXPECT_EQ(Examples(first.batch), Counts{1});
  EXPECT_EQ(first.failed, nullptr);
  const Due second = former.Take(kStart);
  EXPECT_TRUE(second.batch.empty());
  ASSERT_NE(second.failed, nullptr);
  EXPECT_EQ(second.failed->num_examples, 2U);
  EXPECT_EQ(former.queued().work.examples, 4U);
  EXPECT_EQ(former.queued().work.ids, 0U);
  EXPECT_EQ(Examples(former.Take(kStart).batch), Counts{4});
}

}  // namespace
}  // namespace embershard
