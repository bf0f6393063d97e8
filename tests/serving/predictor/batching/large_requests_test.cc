// Requests that are cut, as the rules of batches see them.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "batching/batch_former.h"
#include "batching/large_inputs.h"
#include "batching/request_validation.h"
#include "batching/split_request.h"
#include "batching/start.h"

namespace embershard {
namespace {

using std::chrono::milliseconds;

constexpr ChunkBudget kBudget = {.examples = 10, .ids = 100};

BatchingOptions SmallChunks() {
  return {.max_batch_examples = kBudget.examples,
          .max_batch_ids = kBudget.ids,
          .merge_examples = 6,
          .max_queued_examples = 100,
          .max_queued_ids = 1000,
          .max_queued_bytes = 1000};
}

using Counts = std::vector<uint32_t>;

class LargeRequests : public ::testing::Test {
 protected:
  // Adds a request, which is cut if it has more than 10 examples.
  Admission Add(uint32_t examples, Clock::time_point deadline = Clock::time_point::max(),
                Priority priority = Priority::kInteractive) {
    return Add(Make(examples, deadline, priority), idle_);
  }

  std::unique_ptr<Request> Make(uint32_t examples,
                                Clock::time_point deadline = Clock::time_point::max(),
                                Priority priority = Priority::kInteractive) {
    auto request = FakeRequest(LargeInputs(examples));
    EXPECT_TRUE(CheckRequest(model_, model_.manifest().limits, request.get()).ok());
    request->deadline = deadline;
    request->priority = priority;
    request->held_bytes = 100;
    if (IsLarger(*request, cut_)) {
      // The chunks of this test are never answered.
      request->split = std::make_shared<SplitRequest>(
          &model_.manifest().schema, cut_, *request,
          [](const SplitRequest&) { return std::unique_ptr<Request>(); });
    }
    return request;
  }

  Admission Add(std::unique_ptr<Request> request, const Forecast& forecast) {
    added_ = request.get();
    return former_.Add(request, forecast, kStart);
  }

  // Examples of each request in the next batch. Answers all of them.
  Counts Take(Clock::time_point now = kStart) {
    Due due = former_.Take(now);
    expired_ = std::move(due.expired);
    abandoned_ = std::move(due.abandoned);
    Counts examples;
    for (const auto& request : due.batch) {
      examples.push_back(request->num_examples);
      request->answer({}, {});
    }
    return examples;
  }

  ChunkBudget cut_ = kBudget;
  const FakeModel model_{LargeManifest()};
  const Forecast idle_{SmallChunks()};
  BatchFormer former_{SmallChunks()};
  const Request* added_ = nullptr;
  Batch expired_;
  Batch abandoned_;
};

TEST_F(LargeRequests, LeaveAChunkABatchAndStayUntilTheyAreTaken) {
  ASSERT_EQ(Add(25), Admission::kAccepted);
  EXPECT_EQ(former_.queued().work.examples, 25U);
  EXPECT_EQ(former_.queued().work.requests, 3U);
  EXPECT_EQ(Take(), Counts{9});
  EXPECT_EQ(former_.queued().work.examples, 16U);
  EXPECT_EQ(former_.queued().requests, 1U);
  EXPECT_EQ(former_.queued().bytes, 100U);
  EXPECT_EQ(Take(), Counts{9});
  EXPECT_EQ(Take(), Counts{7});
  EXPECT_FALSE(former_.empty());
  EXPECT_TRUE(Take().empty());
  EXPECT_EQ(former_.Take(*added_).get(), added_);
  EXPECT_TRUE(former_.empty());
  EXPECT_EQ(former_.queued().work.examples, 0U);
  EXPECT_EQ(former_.queued().work.ids, 0U);
  EXPECT_EQ(former_.queued().bytes, 0U);
  EXPECT_EQ(former_.queued().work.requests, 0U);
}

TEST_F(LargeRequests, CutForSeveralSlotsAreNotMergedAgain) {
  cut_.examples = 2;
  ASSERT_EQ(Add(6), Admission::kAccepted);
  ASSERT_EQ(Add(1), Admission::kAccepted);
  EXPECT_EQ(Take(), (Counts{2, 1}));
  EXPECT_EQ(Take(), Counts{2});
  EXPECT_EQ(Take(), Counts{2});
}

TEST_F(LargeRequests, LetOthersRunBetweenTheirChunks) {
  ASSERT_EQ(Add(30, kStart + milliseconds(10)), Admission::kAccepted);
  for (const uint32_t examples : {4U, 3U, 2U, 5U}) {
    ASSERT_EQ(Add(examples, kStart + milliseconds(20)), Admission::kAccepted);
  }
  EXPECT_EQ(Take(), Counts{10});
  EXPECT_EQ(Take(), Counts{4});
  EXPECT_EQ(Take(), Counts{10});
  EXPECT_EQ(Take(), (Counts{3, 2}));
  EXPECT_EQ(Take(), Counts{10});
  EXPECT_EQ(Take(), Counts{5});
}

TEST_F(LargeRequests, RunAfterThoseOfAnEarlierDeadline) {
  ASSERT_EQ(Add(20, kStart + milliseconds(10)), Admission::kAccepted);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(Add(5, kStart + milliseconds(9)), Admission::kAccepted);
  }
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Take(), Counts{5});
  EXPECT_EQ(Take(), Counts{10});
  EXPECT_EQ(Take(), Counts{10});
}

TEST_F(LargeRequests, OfSeveralTheEarlierDeadlineComesFirst) {
  ASSERT_EQ(Add(16, kStart + milliseconds(20)), Admission::kAccepted);
  ASSERT_EQ(Add(14, kStart + milliseconds(10)), Admission::kAccepted);
  EXPECT_EQ(Take(), Counts{7});
  EXPECT_EQ(Take(), Counts{7});
  former_.Take(*added_);
  EXPECT_EQ(Take(), Counts{8});
  EXPECT_EQ(Take(), Counts{8});
}

TEST_F(LargeRequests, AShortChunkIsFilledUpInTheOrderOfDeadlines) {
  ASSERT_EQ(Add(11, kStart + milliseconds(10)), Admission::kAccepted);
  EXPECT_EQ(Take(), Counts{6});
  ASSERT_EQ(Add(1, kStart + milliseconds(20)), Admission::kAccepted);
  EXPECT_EQ(Take(), Counts{1});
  ASSERT_EQ(Add(1, kStart + milliseconds(20)), Admission::kAccepted);
  // A chunk has no deadline of its own: the whole request is answered when its deadline passes.
  EXPECT_EQ(Take(), (Counts{1, 5}));
}

TEST_F(LargeRequests, OfPriorityBackgroundFillWhatTheOthersLeave) {
  ASSERT_EQ(Add(30, Clock::time_point::max(), Priority::kBackground), Admission::kAccepted);
  for (int i = 0; i < 9; ++i) ASSERT_EQ(Add(6), Admission::kAccepted);
  for (int i = 0; i < BatchFormer::kPassedOver; ++i) EXPECT_EQ(Take(), Counts{6});
  EXPECT_EQ(Take(), Counts{10});
  EXPECT_EQ(Take(), Counts{6});
  EXPECT_EQ(Take(), Counts{6});
  EXPECT_EQ(Take(), Counts{10});
}

TEST_F(LargeRequests, PassRequestsOfPriorityBackgroundOverLikeOthers) {
  ASSERT_EQ(Add(100 - 5), Admission::kAccepted);
  ASSERT_EQ(Add(5, Clock::time_point::max(), Priority::kBackground), Admission::kAccepted);
  for (int i = 0; i < BatchFormer::kPassedOver; ++i) EXPECT_EQ(Take(), Counts{10});
  EXPECT_EQ(Take(), Counts{5});
  EXPECT_EQ(Take(), Counts{10});
}

TEST_F(LargeRequests, LeaveForSeveralSlotsAtOnceThenTheNextOfThem) {
  ASSERT_EQ(Add(20), Admission::kAccepted);
  ASSERT_EQ(Add(15, Clock::time_point::max(), Priority::kBackground), Admission::kAccepted);
  ASSERT_EQ(Add(16), Admission::kAccepted);
  std::vector<Due> running;
  Counts examples;
  while (former_.can_take()) {
    running.push_back(former_.Take(kStart));
    ASSERT_EQ(running.back().batch.size(), 1U);
    examples.push_back(running.back().batch[0]->num_examples);
  }
  // Chunks of priority background wait for all others.
  EXPECT_EQ(examples, (Counts{10, 10, 8, 8, 8, 7}));
  EXPECT_FALSE(former_.empty());
  EXPECT_EQ(former_.queued().requests, 3U);
  EXPECT_EQ(former_.queued().work.requests, 0U);
  ASSERT_EQ(Add(4), Admission::kAccepted);
  EXPECT_EQ(Take(), Counts{4});
  EXPECT_FALSE(former_.can_take());
}

TEST_F(LargeRequests, LeaveWholeAtTheirDeadlineAndWithTheirClient) {
  ASSERT_EQ(Add(20, kStart + milliseconds(10)), Admission::kAccepted);
  EXPECT_EQ(former_.next_deadline(), kStart + milliseconds(10));
  EXPECT_EQ(Take(), Counts{10});
  EXPECT_EQ(former_.TakeExpired(kStart + milliseconds(9)), nullptr);
  EXPECT_EQ(former_.TakeExpired(kStart + milliseconds(10)).get(), added_);
  EXPECT_EQ(former_.queued().work.examples, 0U);

  ASSERT_EQ(Add(20, kStart + milliseconds(10)), Admission::kAccepted);
  EXPECT_TRUE(Take(kStart + milliseconds(10)).empty());
  ASSERT_EQ(expired_.size(), 1U);
  EXPECT_EQ(expired_[0].get(), added_);

  auto left = Make(20);
  left->abandoned = [] { return true; };
  ASSERT_EQ(Add(std::move(left), idle_), Admission::kAccepted);
  EXPECT_TRUE(Take().empty());
  ASSERT_EQ(abandoned_.size(), 1U);
  EXPECT_TRUE(former_.empty());
  EXPECT_EQ(former_.queued().work.ids, 0U);
}

TEST_F(LargeRequests, CountWholeAgainstTheQueue) {
  ASSERT_EQ(Add(60), Admission::kAccepted);
  EXPECT_EQ(Add(50), Admission::kQueueFull);
  EXPECT_EQ(Add(101), Admission::kTooLarge);
  EXPECT_EQ(Take(), Counts{10});
  EXPECT_EQ(Add(50), Admission::kAccepted);
}

// Batches of 6 to 10 examples take 8 ms each.
Forecast Slow() {
  Forecast forecast(SmallChunks());
  for (const uint64_t examples : {5, 9}) {
    for (int i = 0; i < 2; ++i) {
      forecast.RunBegins(0, {.requests = 1, .examples = examples, .ids = 20},
                         kStart - milliseconds(8));
      forecast.RunEnds(0, kStart);
    }
  }
  return forecast;
}

TEST_F(LargeRequests, AreAcceptedWhereAllTheirChunksAndAsManyOthersEndInTime) {
  ASSERT_EQ(Add(Make(5, kStart + milliseconds(10)), Slow()), Admission::kAccepted);
  // Three chunks, three batches of others, the request that waits, and a margin of a quarter.
  const Clock::duration needed = milliseconds(8) * 7 * 5 / 4;
  EXPECT_EQ(Add(Make(27, kStart + needed - milliseconds(9)), Slow()),
            Admission::kDeadlineInfeasible);
  EXPECT_EQ(Add(Make(27, kStart + needed + milliseconds(9)), Slow()), Admission::kAccepted);
}

TEST_F(LargeRequests, DelayOnlyWhatIsDueAfterThem) {
  ASSERT_EQ(Add(Make(50, kStart + milliseconds(500)), Slow()), Admission::kAccepted);
  EXPECT_EQ(Add(Make(5, kStart + milliseconds(12)), Slow()), Admission::kAccepted);
  EXPECT_EQ(Add(Make(5, kStart + milliseconds(9)), Slow()), Admission::kDeadlineInfeasible);
}

}  // namespace
}  // namespace embershard
