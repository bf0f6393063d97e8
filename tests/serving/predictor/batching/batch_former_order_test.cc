// The order of requests: deadlines, too little time, and priorities.

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <vector>

#include "batching/batch_former.h"
#include "batching/batch_former_fixture.h"

namespace embershard {
namespace {

using std::chrono::milliseconds;

std::unique_ptr<Request> OfBatch(uint32_t examples,
                                 Clock::time_point deadline = Clock::time_point::max()) {
  auto request = Waiting(examples, 0, deadline);
  request->priority = Priority::kBackground;
  return request;
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

TEST(BatchFormer, RefusesWhatWouldNotHaveRunByItsDeadline) {
  BatchFormer former(Small());
  const Forecast busy = Busy();
  // It would end in 15 ms, or 18.75 ms with the margin of a quarter.
  EXPECT_EQ(AddDueIn(&former, 1, 18, busy), Admission::kDeadlineInfeasible);
  EXPECT_EQ(AddDueIn(&former, 9, 19, busy), Admission::kAccepted);
  // It would run in the second batch: 25 ms, or 31.25 ms with the margin.
  EXPECT_EQ(AddDueIn(&former, 2, 31, busy), Admission::kDeadlineInfeasible);
  EXPECT_EQ(AddDueIn(&former, 2, 32, busy), Admission::kAccepted);
  // Requests that are due later do not delay it.
  EXPECT_EQ(AddDueIn(&former, 1, 20, busy), Admission::kAccepted);
  EXPECT_EQ(former.queued().requests, 3U);
}

TEST(BatchFormer, AcceptsWhatNothingIsBeforeWhateverTheForecastSays) {
  BatchFormer former(Small());
  Forecast idle = Busy();
  idle.RunEnds(0, kStart);
  EXPECT_EQ(AddDueIn(&former, 1, 1, idle), Admission::kAccepted);
  EXPECT_EQ(AddDueIn(&former, 1, 2, idle), Admission::kDeadlineInfeasible);
}

TEST(BatchFormer, AcceptsAnythingInTimeWhileNothingIsKnown) {
  BatchFormer former(Small());
  Forecast forecast(Small());
  forecast.RunBegins(0, {1, 1, 1}, kStart);
  EXPECT_EQ(AddDueIn(&former, 10, 1, forecast), Admission::kAccepted);
  EXPECT_EQ(AddDueIn(&former, 10, 1, forecast), Admission::kAccepted);
}

TEST(BatchFormer, SaysAfterHowLongThereWillBeRoomOrTime) {
  BatchFormer former(Small());
  const Forecast busy = Busy();
  EXPECT_EQ(AddDueIn(&former, 9, 19, busy), Admission::kAccepted);
  // It ends after 25 ms: 5 ms of the running batch, 10 ms of the next and 10 ms of its own. With
  // the margin of a quarter that is 31.25 ms, 11.25 ms after its deadline.
  const auto late = Waiting(2, 1, kStart + milliseconds(20));
  EXPECT_EQ(former.RetryAfter(*late, busy, kStart), std::chrono::microseconds(11250));
  // There is room after the next batch has run.
  EXPECT_EQ(former.RetryAfter(*Waiting(10), busy, kStart), milliseconds(15));
  EXPECT_EQ(former.RetryAfter(*Waiting(10), Forecast(Small()), kStart), milliseconds(0));
}

TEST(BatchFormer, BatchPriorityRunsInWhatInteractiveRequestsLeaveFree) {
  BatchFormer former(Small());
  EXPECT_EQ(Add(&former, OfBatch(3, kStart + milliseconds(1))), Admission::kAccepted);
  EXPECT_EQ(Add(&former, OfBatch(4, kStart + milliseconds(2))), Admission::kAccepted);
  EXPECT_EQ(Add(&former, Waiting(6, 0, kStart + milliseconds(9))), Admission::kAccepted);
  // The batch is still in the order of deadlines, which observers of a batch expect.
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
  EXPECT_EQ(former.queued().work.examples, 8U);
}

TEST(BatchFormer, BatchPriorityCountsForTheTimeOfAnInteractiveRequestWhereItIsItsTurn) {
  BatchFormer former(Small());
  const Forecast busy = Busy();
  EXPECT_EQ(Add(&former, OfBatch(10)), Admission::kAccepted);
  // It waits for one batch only: requests without a deadline run after it.
  EXPECT_EQ(AddDueIn(&former, 10, 19, busy), Admission::kAccepted);
  for (int i = 0; i < BatchFormer::kPassedOver; ++i) {
    EXPECT_EQ(Examples(former.Take(kStart).batch), Counts{10});
    EXPECT_EQ(AddDueIn(&former, 10, 1000, busy), Admission::kAccepted);
  }
  EXPECT_EQ(AddDueIn(&former, 1, 31, busy), Admission::kDeadlineInfeasible);
  EXPECT_EQ(AddDueIn(&former, 1, 32, busy), Admission::kAccepted);
}

}  // namespace
}  // namespace embershard
