// A model that fails for a batch fails only the requests for which it fails.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/asking.h"
#include "engine/batch_executor.h"
#include "testing/wait_for.h"

namespace embershard {
namespace {

constexpr float kPoison = 13;  // An age for which the model fails.

FakeInputs Poisoned() {
  FakeInputs inputs = GoodInputs();
  inputs.dense[0] = {kPoison};
  return inputs;
}

bool HasPoison(const Slot& slot) {
  return std::find(slot.request_dense.begin(), slot.request_dense.end(), kPoison) !=
         slot.request_dense.end();
}

// Throws where it meets the poison.
std::unique_ptr<FakeModel> Brittle() {
  auto model = std::make_unique<FakeModel>();
  model->before_run = [](const Slot& slot) {
    if (HasPoison(slot)) throw std::runtime_error("no");
    return Status();
  };
  return model;
}

// Runs one batch of that many requests, of which `guilty` are poisoned, and checks every answer.
TelemetrySnapshot ExpectOnlyTheGuiltyFail(size_t requests, const std::vector<size_t>& guilty) {
  const auto engine = StartWith(Brittle());
  std::vector<std::unique_ptr<Request>> batch;
  std::vector<std::future<Answer>> answers;
  for (size_t i = 0; i < requests; ++i) {
    const bool poisoned = std::find(guilty.begin(), guilty.end(), i) != guilty.end();
    auto [request, answer] = Ask(poisoned ? Poisoned() : GoodInputs());
    batch.push_back(std::move(request));
    answers.push_back(std::move(answer));
  }
  engine->PredictMerged(std::move(batch));
  for (size_t i = 0; i < requests; ++i) {
    const Answer answer = answers[i].get();
    if (std::find(guilty.begin(), guilty.end(), i) == guilty.end()) {
      ExpectGood(answer);
      EXPECT_EQ(answer.response.timing.dense_us, 22U);  // Time of the run that computed its scores.
    } else {
      EXPECT_EQ(answer.status.code(), StatusCode::kInternal);
      EXPECT_EQ(answer.status.message(), "the batch failed: no");
    }
  }
  return engine->Snapshot().telemetry;
}

TEST(Rerun, OnlyTheRequestFailsForWhichTheModelFails) {
  for (const size_t guilty : {0U, 1U, 5U, 6U}) {
    const TelemetrySnapshot counted = ExpectOnlyTheGuiltyFail(7, {guilty});
    EXPECT_EQ(counted.batches, 1U);
    EXPECT_LE(counted.reruns, 6U);
    EXPECT_GE(counted.reruns, 4U);
    EXPECT_EQ(counted.unknown_ids, (std::vector<uint64_t>{0, 0, 0, 6, 0}));
  }
}

TEST(Rerun, OneAmongManyIsFoundInFewRuns) {
  EXPECT_EQ(ExpectOnlyTheGuiltyFail(512, {300}).reruns, 18U);  // Two runs for each halving.
}

TEST(Rerun, SeveralAreFound) {
  ExpectOnlyTheGuiltyFail(2, {0});
  ExpectOnlyTheGuiltyFail(64, {3, 31, 32});
  ExpectOnlyTheGuiltyFail(6, {0, 1, 2, 3, 4, 5});
}

TEST(Rerun, ABatchOfOneIsNotRunAgain) { EXPECT_EQ(ExpectOnlyTheGuiltyFail(1, {0}).reruns, 0U); }

TEST(Rerun, EndsWhereEverythingFails) {
  int runs = 0;
  auto model = std::make_unique<FakeModel>();
  model->before_run = [&runs](const Slot&) {
    ++runs;
    return Internal("broken");
  };
  const auto engine = StartWith(std::move(model));
  std::vector<std::unique_ptr<Request>> batch;
  std::vector<std::future<Answer>> answers;
  for (int i = 0; i < 500; ++i) {
    auto [request, answer] = Ask(GoodInputs());
    batch.push_back(std::move(request));
    answers.push_back(std::move(answer));
  }
  engine->PredictMerged(std::move(batch));
  for (auto& answer : answers) EXPECT_EQ(answer.get().status.message(), "broken");
  EXPECT_EQ(runs, 1 + BatchExecutor::kRerunsInVain);
}

TEST(Rerun, EndsWhereTooManyAreGuilty) {
  int runs = 0;
  auto model = std::make_unique<FakeModel>();
  model->before_run = [&runs](const Slot& slot) {
    ++runs;
    return HasPoison(slot) ? Internal("broken") : Status();
  };
  EngineOptions options;
  options.batching.max_batch_examples = 4000;
  const auto engine = StartWith(std::move(model), options);
  std::vector<std::unique_ptr<Request>> batch;
  std::vector<std::future<Answer>> answers;
  for (int i = 0; i < 1000; ++i) {
    auto [request, answer] = Ask(i % 2 == 0 ? Poisoned() : GoodInputs());
    batch.push_back(std::move(request));
    answers.push_back(std::move(answer));
  }
  engine->PredictMerged(std::move(batch));
  size_t good = 0;
  for (auto& answer : answers) {
    const Answer answered = answer.get();
    if (answered.status.ok()) {
      ++good;
    } else {
      EXPECT_EQ(answered.status.message(), "broken");
    }
  }
  EXPECT_GT(good, 0U);
  EXPECT_EQ(runs, 1 + BatchExecutor::kRerunsMax);
}

TEST(Rerun, WhatIsTooMuchForMemoryAtOnceRunsInParts) {
  auto model = std::make_unique<FakeModel>();
  model->before_run = [](const Slot& slot) {
    if (slot.requests > 2) throw std::bad_alloc();
    return Status();
  };
  const auto engine = StartWith(std::move(model));
  std::vector<std::unique_ptr<Request>> batch;
  std::vector<std::future<Answer>> answers;
  for (int i = 0; i < 5; ++i) {
    auto [request, answer] = Ask(GoodInputs());
    batch.push_back(std::move(request));
    answers.push_back(std::move(answer));
  }
  engine->PredictMerged(std::move(batch));
  for (auto& answer : answers) ExpectGood(answer.get());
}

TEST(Rerun, ExpiredAndCancelledRequestsAreNotRunAgain) {
  BatchTimes times;
  FakeModel model;
  std::vector<size_t> runs;
  model.before_run = [&runs](const Slot& slot) {
    runs.push_back(slot.requests);
    return runs.size() == 1 ? Internal("broken") : Status();
  };
  BatchExecutor executor(&model);
  Slot buffers;
  std::vector<std::unique_ptr<Request>> batch;
  for (int i = 0; i < 6; ++i) batch.push_back(FakeRequest(GoodInputs()));
  const IsWanted wanted = [&batch](const Request& request) {
    return &request != batch[0].get() && &request != batch[1].get() && &request != batch[5].get();
  };
  const auto ran = executor.Run(batch, wanted, &buffers, &times);
  ASSERT_TRUE(ran.ok());
  const BatchExecutor::Responses& responses = *ran;
  EXPECT_EQ(runs, (std::vector<size_t>{6, 1, 2}));
  EXPECT_EQ(times.reruns, 2);
  EXPECT_EQ(times.dense_us, 44U);
  for (const size_t late : {0U, 1U, 5U}) {
    EXPECT_EQ(responses[late].status().code(), StatusCode::kDeadlineExceeded);
  }
  for (const size_t good : {2U, 3U, 4U}) EXPECT_TRUE(responses[good].ok());
}

TEST(Rerun, DeadlinesAndClientsAreSeenBetweenTheRuns) {
  // Three requests wait for a first one, then run in one batch that fails. One client leaves during
  // that batch.
  CancellationHandle cancellation;
  Engine* running = nullptr;
  std::atomic<bool> open = false;
  std::atomic<int> runs = 0;
  std::atomic<int> runs_of_it = 0;
  auto model = std::make_unique<FakeModel>();
  model->before_run = [&](const Slot& slot) {
    const int run = ++runs;
    if (run == 1) {
      EXPECT_TRUE(WaitFor([&] { return open.load(); }));
    }
    if (run == 2) running->Cancel(&cancellation, StatusReason::kAbandoned);
    for (const float age : slot.request_dense) runs_of_it += age == 77 ? 1 : 0;
    return HasPoison(slot) ? Internal("broken") : Status();
  };
  const auto engine = StartWith(std::move(model));
  running = engine.get();
  auto first = Predict(engine.get(), GoodInputs());
  EXPECT_TRUE(WaitFor([&] { return runs == 1; }));
  FakeInputs leaving = GoodInputs();
  leaving.dense[0] = {77};
  auto [left, left_answer] = Ask(leaving);
  left->cancellation = &cancellation;
  engine->Predict(std::move(left));
  auto guilty = Predict(engine.get(), Poisoned());
  auto good = Predict(engine.get(), GoodInputs());
  open = true;
  ExpectGood(first.get());
  EXPECT_EQ(left_answer.get().status.reason(), StatusReason::kAbandoned);
  EXPECT_EQ(guilty.get().status.message(), "broken");
  ExpectGood(good.get());
  EXPECT_EQ(runs_of_it, 1);
}

}  // namespace
}  // namespace embershard
