#include "batching/batch_former.h"

#include <gtest/gtest.h>

#include <new>
#include <vector>

namespace embershard {
namespace {

using std::chrono::milliseconds;

const Clock::time_point kStart{};

std::unique_ptr<Request> Waiting(uint32_t examples, uint64_t ids = 0,
                                 Clock::time_point deadline = Clock::time_point::max()) {
  auto request = std::make_unique<Request>();
  request->num_examples = examples;
  request->num_ids = ids;
  request->deadline = deadline;
  return request;
}

BatchingOptions Small() {
  return {.max_batch_examples = 10,
          .max_batch_ids = 100,
          .merge_examples = 10,
          .max_queued_examples = 30,
          .max_queued_ids = 200,
          .max_queued_bytes = 1000};
}

Admission Add(BatchFormer* former, std::unique_ptr<Request> request,
              Clock::time_point now = kStart) {
  const Admission admission = former->Add(request, Forecast(Small()), now);
  EXPECT_EQ(request == nullptr, admission == Admission::kAccepted);
  return admission;
}

std::vector<uint32_t> Examples(const Batch& batch) {
  std::vector<uint32_t> examples;
  for (const auto& request : batch) examples.push_back(request->num_examples);
  return examples;
}

using Counts = std::vector<uint32_t>;

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
  // The small one behind does not overtake: the one of 5 would wait for ever.
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
  EXPECT_EQ(former.queued().examples, 30U);
  EXPECT_EQ(former.queued().ids, 200U);
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
  EXPECT_EQ(former.queued().examples, 20U);
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
  // The expired ones take no room in the batch either.
  EXPECT_EQ(Examples(due.batch), (Counts{3, 2}));
  EXPECT_EQ(Examples(due.expired), (Counts{4, 9}));
  EXPECT_TRUE(former.empty());
  EXPECT_EQ(former.queued().examples, 0U);
}

TEST(BatchFormer, NeverRunsARequestWhoseClientHasLeft) {
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
  EXPECT_EQ(former.queued().ids, 0U);
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

TEST(BatchFormer, TakesTheEarliestDeadlineFirst) {
  BatchFormer former(Small());
  EXPECT_EQ(former.next_deadline(), Clock::time_point::max());
  EXPECT_EQ(Add(&former, Waiting(6)), Admission::kAccepted);
  EXPECT_EQ(Add(&former, Waiting(5, 0, kStart + milliseconds(9))), Admission::kAccepted);
  EXPECT_EQ(Add(&former, Waiting(4, 0, kStart + milliseconds(7))), Admission::kAccepted);
  EXPECT_EQ(Add(&former, Waiting(1, 0, kStart + milliseconds(9))), Admission::kAccepted);
  EXPECT_EQ(former.next_deadline(), kStart + milliseconds(7));
  EXPECT_EQ(Examples(former.Take(kStart).batch), (Counts{4, 5, 1}));
  EXPECT_EQ(Examples(former.Take(kStart).batch), (Counts{6}));
}

// A model that is busy for another 5 ms, and takes 10 ms for any batch.
Forecast Busy() {
  Forecast forecast(Small());
  forecast.RunBegins({1, 1, 1}, kStart - milliseconds(15));
  forecast.RunEnds(kStart - milliseconds(5));
  forecast.RunBegins({1, 1, 1}, kStart - milliseconds(5));
  return forecast;
}

Admission AddDueIn(BatchFormer* former, uint32_t examples, int milliseconds_left,
                   const Forecast& forecast) {
  auto request = Waiting(examples, 1, kStart + milliseconds(milliseconds_left));
  return former->Add(request, forecast, kStart);
}

TEST(BatchFormer, RefusesWhatWouldNotHaveRunByItsDeadline) {
  BatchFormer former(Small());
  const Forecast busy = Busy();
  // In 15 ms, and a quarter of that.
  EXPECT_EQ(AddDueIn(&former, 1, 18, busy), Admission::kNoTime);
  EXPECT_EQ(AddDueIn(&former, 9, 19, busy), Admission::kAccepted);
  // It would be in the second batch: in 25 ms, and a quarter.
  EXPECT_EQ(AddDueIn(&former, 2, 31, busy), Admission::kNoTime);
  EXPECT_EQ(AddDueIn(&former, 2, 32, busy), Admission::kAccepted);
  // What is due later does not stand in its way.
  EXPECT_EQ(AddDueIn(&former, 1, 20, busy), Admission::kAccepted);
  EXPECT_EQ(former.queued().requests, 3U);
}

TEST(BatchFormer, AcceptsWhatNothingIsBeforeWhateverTheForecastSays) {
  BatchFormer former(Small());
  Forecast idle = Busy();
  idle.RunEnds(kStart);
  EXPECT_EQ(AddDueIn(&former, 1, 1, idle), Admission::kAccepted);
  EXPECT_EQ(AddDueIn(&former, 1, 2, idle), Admission::kNoTime);
}

TEST(BatchFormer, AcceptsAnythingInTimeWhileNothingIsKnown) {
  BatchFormer former(Small());
  Forecast forecast(Small());
  forecast.RunBegins({1, 1, 1}, kStart);
  EXPECT_EQ(AddDueIn(&former, 10, 1, forecast), Admission::kAccepted);
  EXPECT_EQ(AddDueIn(&former, 10, 1, forecast), Admission::kAccepted);
}

TEST(BatchFormer, GivesTheRoomOfAnExpiredRequestBackAtOnce) {
  BatchFormer former(Small());
  EXPECT_EQ(Add(&former, Waiting(10)), Admission::kAccepted);
  EXPECT_EQ(Add(&former, Waiting(8, 7, kStart + milliseconds(1))), Admission::kAccepted);
  EXPECT_EQ(Add(&former, Waiting(2, 5, kStart + milliseconds(2))), Admission::kAccepted);
  EXPECT_EQ(former.TakeExpired(kStart), nullptr);
  EXPECT_EQ(former.TakeExpired(kStart + milliseconds(1))->num_examples, 8U);
  EXPECT_EQ(former.TakeExpired(kStart + milliseconds(1)), nullptr);
  EXPECT_EQ(former.queued().examples, 12U);
  EXPECT_EQ(former.queued().ids, 5U);
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
  EXPECT_EQ(former.queued().examples, 4U);
  EXPECT_EQ(former.queued().bytes, 0U);
  EXPECT_EQ(former.queued().requests, 2U);
  EXPECT_EQ(Examples(former.Take(kStart).batch), (Counts{1, 3}));
}

std::unique_ptr<Request> OfBatch(uint32_t examples,
                                 Clock::time_point deadline = Clock::time_point::max()) {
  auto request = Waiting(examples, 0, deadline);
  request->priority = Priority::kBatch;
  return request;
}

TEST(BatchFormer, BatchPriorityRunsInWhatInteractiveRequestsLeaveFree) {
  BatchFormer former(Small());
  EXPECT_EQ(Add(&former, OfBatch(3, kStart + milliseconds(1))), Admission::kAccepted);
  EXPECT_EQ(Add(&former, OfBatch(4, kStart + milliseconds(2))), Admission::kAccepted);
  EXPECT_EQ(Add(&former, Waiting(6, 0, kStart + milliseconds(9))), Admission::kAccepted);
  // By deadline all the same, as those who watch a batch expect.
  EXPECT_EQ(Examples(former.Take(kStart).batch), (Counts{3, 6}));
  EXPECT_EQ(former.next_deadline(), kStart + milliseconds(2));
  EXPECT_EQ(Examples(former.Take(kStart).batch), Counts{4});
}

TEST(BatchFormer, NothingOfBatchPriorityOvertakesAnInteractiveRequestThatDoesNotFit) {
  BatchFormer former(Small());
  EXPECT_EQ(Add(&former, OfBatch(1)), Admission::kAccepted);
  EXPECT_EQ(Add(&former, Waiting(8)), Admission::kAccepted);
  EXPECT_EQ(Add(&former, Waiting(3)), Admission::kAccepted);
  EXPECT_EQ(Examples(former.Take(kStart).batch), Counts{8});
  EXPECT_EQ(Examples(former.Take(kStart).batch), (Counts{3, 1}));
}

TEST(BatchFormer, OneBatchInEightBeginsWithBatchPriorityHoweverManyInteractiveRequestsWait) {
  BatchFormer former(Small());
  EXPECT_EQ(Add(&former, OfBatch(9)), Admission::kAccepted);
  EXPECT_EQ(Add(&former, Waiting(10)), Admission::kAccepted);
  std::vector<Counts> batches;
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(Add(&former, Waiting(10)), Admission::kAccepted);
    batches.push_back(Examples(former.Take(kStart).batch));
    if (i != 7) continue;
    EXPECT_EQ(Examples(former.Take(kStart).batch), Counts{10});  // Makes room.
    EXPECT_EQ(Add(&former, OfBatch(8)), Admission::kAccepted);
  }
  std::vector<Counts> expected(16, Counts{10});
  expected[7] = {9};
  expected[15] = {8};
  EXPECT_EQ(batches, expected);
}

TEST(BatchFormer, BatchPriorityTakesHalfOfTheQueueAndALargeOneMoreWhereItIsAlone) {
  BatchFormer former(Small());
  EXPECT_EQ(Add(&former, OfBatch(8)), Admission::kAccepted);
  EXPECT_EQ(Add(&former, OfBatch(8)), Admission::kQueueFull);
  EXPECT_EQ(Add(&former, OfBatch(7)), Admission::kAccepted);
  EXPECT_EQ(Add(&former, Waiting(10)), Admission::kAccepted);
  BatchingOptions short_queue = Small();
  short_queue.max_queued_examples = 10;
  BatchFormer narrow(short_queue);
  EXPECT_EQ(Add(&narrow, OfBatch(9)), Admission::kAccepted);
  EXPECT_EQ(Add(&narrow, OfBatch(1)), Admission::kQueueFull);
  EXPECT_EQ(Add(&narrow, Waiting(1)), Admission::kAccepted);
}

TEST(BatchFormer, BatchPriorityLeavesItsRoomWhenItExpiresOrIsTakenBack) {
  BatchFormer former(Small());
  EXPECT_EQ(Add(&former, OfBatch(7, kStart + milliseconds(1))), Admission::kAccepted);
  auto request = OfBatch(8);
  const Request& second = *request;
  EXPECT_EQ(Add(&former, std::move(request)), Admission::kAccepted);
  EXPECT_EQ(former.TakeExpired(kStart + milliseconds(1))->num_examples, 7U);
  EXPECT_EQ(Add(&former, OfBatch(8)), Admission::kQueueFull);
  EXPECT_EQ(former.Take(second)->num_examples, 8U);
  EXPECT_EQ(Add(&former, OfBatch(8)), Admission::kAccepted);
  EXPECT_EQ(former.queued().examples, 8U);
}

TEST(BatchFormer, BatchPriorityCountsForTheTimeOfAnInteractiveRequestWhereItIsItsTurn) {
  BatchFormer former(Small());
  const Forecast busy = Busy();
  EXPECT_EQ(Add(&former, OfBatch(10)), Admission::kAccepted);
  // One batch: what waits without hurry is behind it.
  EXPECT_EQ(AddDueIn(&former, 10, 19, busy), Admission::kAccepted);
  for (int i = 0; i < BatchFormer::kPassedOver; ++i) {
    EXPECT_EQ(Examples(former.Take(kStart).batch), Counts{10});
    EXPECT_EQ(AddDueIn(&former, 10, 1000, busy), Admission::kAccepted);
  }
  EXPECT_EQ(AddDueIn(&former, 1, 31, busy), Admission::kNoTime);
  EXPECT_EQ(AddDueIn(&former, 1, 32, busy), Admission::kAccepted);
}

TEST(BatchFormer, SaysAfterHowLongThereWillBeRoomOrTime) {
  BatchFormer former(Small());
  const Forecast busy = Busy();
  EXPECT_EQ(AddDueIn(&former, 9, 19, busy), Admission::kAccepted);
  // Behind 5 ms of the batch that runs and 10 ms of the next, it has run after 25, and a quarter.
  const auto late = Waiting(2, 1, kStart + milliseconds(20));
  EXPECT_EQ(former.RetryAfter(*late, busy, kStart), std::chrono::microseconds(11250));
  // Room is there once the next batch has run.
  EXPECT_EQ(former.RetryAfter(*Waiting(10), busy, kStart), milliseconds(15));
  EXPECT_EQ(former.RetryAfter(*Waiting(10), Forecast(Small()), kStart), milliseconds(0));
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
  EXPECT_EQ(former.queued().examples, 4U);
  EXPECT_EQ(former.queued().ids, 0U);
  EXPECT_EQ(Examples(former.Take(kStart).batch), Counts{4});
}

}  // namespace
}  // namespace embershard
