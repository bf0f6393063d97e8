// Requests that are refused because their deadline would pass first. The tests move the clock, and
// every batch takes exactly the time that they set.

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/asking.h"
#include "engine/engine.h"
#include "engine/stepped.h"

namespace embershard {
namespace {

using std::chrono::milliseconds;

const Clock::time_point kStart{std::chrono::hours(1)};

// The dense values alone.
FakeInputs OfExamples(uint32_t examples) {
  return {.num_examples = examples,
          .dense = {{30}, std::vector<float>(examples, 1), {}},
          .sparse = std::vector<FakeLists>(5),
          .outputs_wanted = {0, 1}};
}

// An engine that runs two examples a batch: one request of GoodInputs().
class AdmissionTest : public ::testing::Test {
 protected:
  ~AdmissionTest() override { stepped_.LetAllGo(); }

  std::future<Answer> Submit(const FakeInputs& inputs, Priority priority,
                             Clock::time_point deadline = Clock::time_point::max()) {
    auto [request, answer] = Ask(inputs);
    request->priority = priority;
    request->deadline = deadline;
    engine_->Predict(std::move(request));
    return std::move(answer);
  }

  // Runs one request alone, which takes that long.
  void Teach(const FakeInputs& inputs, Priority priority, milliseconds took) {
    auto answer = Submit(inputs, priority);
    stepped_.WaitUntilRunning();
    clock_.Advance(took);
    now_ += took;
    stepped_.LetGo();
    EXPECT_TRUE(answer.get().status.ok());
  }

  // Like Submit(), but returns when the request runs. All batches before it have ended by then.
  std::future<Answer> Begin(const FakeInputs& inputs) {
    auto answer = Submit(inputs, Priority::kInteractive);
    stepped_.WaitUntilRunning();
    return answer;
  }

  // Submits the same request, due after `left`.
  std::future<Answer> DueIn(milliseconds left, Priority priority = Priority::kInteractive) {
    return Submit(GoodInputs(), priority, now_ + left);
  }

  size_t waiting() const { return engine_->Snapshot().queued.requests; }

  Clock::time_point now_ = kStart;
  SteppedClock clock_{kStart};
  SteppedModel stepped_;
  const std::unique_ptr<Engine> engine_ =
      StartWith(stepped_.model(), {.batching = {.merge_examples = 2}, .now = clock_.now()});
};

void ExpectInfeasible(const Answer& answer, size_t examples_waiting, milliseconds retry_after) {
  EXPECT_EQ(answer.status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(answer.status.reason(), StatusReason::kDeadlineInfeasible);
  EXPECT_EQ(answer.status.message(),
            "the deadline would pass first: " + std::to_string(examples_waiting) +
                " examples are waiting; try again after a pause");
  // Costs are kept in 24 bits.
  EXPECT_NEAR(std::chrono::duration<double>(answer.response.retry_after).count(),
              std::chrono::duration<double>(retry_after).count(), 1e-5);
}

TEST_F(AdmissionTest, RefusesAtOnceWhatWouldEndTooLateAndSaysAfterHowLongItWouldNot) {
  Teach(GoodInputs(), Priority::kInteractive, milliseconds(100));
  auto running = Begin(GoodInputs());
  // 100 ms for the running batch and 100 ms for its own: 250 ms with the margin of a quarter.
  ExpectInfeasible(DueIn(milliseconds(240)).get(), 0, milliseconds(10));
  EXPECT_EQ(waiting(), 0U);
  auto first = DueIn(milliseconds(260));
  EXPECT_EQ(waiting(), 1U);
  // It would run after that one: 300 ms, or 375 with the margin.
  ExpectInfeasible(DueIn(milliseconds(370)).get(), 2, milliseconds(5));
  auto second = DueIn(milliseconds(380));
  // A request that is due earlier runs before both, so they do not count.
  auto third = DueIn(milliseconds(255));
  EXPECT_EQ(waiting(), 3U);
  stepped_.LetAllGo();
  for (auto* answer : {&running, &first, &second, &third}) ExpectGood(answer->get());
}

TEST_F(AdmissionTest, CountsWhatHasPassedOfTheBatchThatRuns) {
  Teach(GoodInputs(), Priority::kInteractive, milliseconds(100));
  auto running = Begin(GoodInputs());
  clock_.Advance(milliseconds(60));
  now_ += milliseconds(60);
  // 40 ms are left of the running batch, and its own takes 100: 175 ms with the margin.
  ExpectInfeasible(DueIn(milliseconds(170)).get(), 0, milliseconds(5));
  auto waits = DueIn(milliseconds(180));
  EXPECT_EQ(waiting(), 1U);
  stepped_.LetAllGo();
  ExpectGood(running.get());
  ExpectGood(waits.get());
}

TEST_F(AdmissionTest, OfPriorityBackgroundWaitsBehindAllAndDelaysNoInteractiveOne) {
  Teach(GoodInputs(), Priority::kInteractive, milliseconds(100));
  auto running = Begin(GoodInputs());
  std::vector<std::future<Answer>> batch;
  for (int i = 0; i < 5; ++i) batch.push_back(DueIn(milliseconds(800), Priority::kBackground));
  ASSERT_EQ(waiting(), 5U);
  // A background request would run seventh: after 700 ms, or 875 with the margin of a quarter.
  ExpectInfeasible(DueIn(milliseconds(870), Priority::kBackground).get(), 10, milliseconds(5));
  // An interactive request would run next, ahead of the five: after 200 ms, or 250 with the margin.
  ExpectInfeasible(DueIn(milliseconds(240)).get(), 10, milliseconds(10));
  auto interactive = DueIn(milliseconds(260));
  EXPECT_EQ(waiting(), 6U);
  stepped_.LetGo();
  ExpectGood(running.get());
  stepped_.WaitUntilRunning();
  stepped_.LetGo();
  ASSERT_EQ(interactive.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  ExpectGood(interactive.get());
  stepped_.LetAllGo();
  for (auto& answer : batch) ExpectGood(answer.get());
}

TEST_F(AdmissionTest, WhatLargeBackgroundRequestsTookIsNotExpectedOfSmallOnes) {
  Teach(GoodInputs(), Priority::kInteractive, milliseconds(10));
  Teach(OfExamples(8), Priority::kBackground, milliseconds(700));
  auto running = Begin(GoodInputs());
  // 10 ms for the running batch and 10 ms for its own: 25 ms with the margin.
  ExpectInfeasible(DueIn(milliseconds(20)).get(), 0, milliseconds(5));
  auto waits = DueIn(milliseconds(30));
  EXPECT_EQ(waiting(), 1U);
  stepped_.LetAllGo();
  ExpectGood(running.get());
  ExpectGood(waits.get());
}

}  // namespace
}  // namespace embershard
