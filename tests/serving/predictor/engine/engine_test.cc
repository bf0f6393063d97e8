#include "engine/engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <limits>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/asking.h"
#include "testing/wait_for.h"

namespace embershard {
namespace {

TEST(Engine, AnswersWithOutputsUnknownIdsAndTimings) {
  const auto engine = StartWith(std::make_unique<FakeModel>());
  const Answer answer = Predict(engine.get(), GoodInputs()).get();
  ExpectGood(answer);
  ASSERT_EQ(answer.response.unknown_ids.size(), 1U);
  EXPECT_EQ(answer.response.unknown_ids[0].sparse_input, 3U);
  EXPECT_EQ(answer.response.unknown_ids[0].count, 1U);
  EXPECT_EQ(answer.response.timing.lookup_us, 11U);
  EXPECT_EQ(answer.response.timing.dense_us, 22U);
  EXPECT_GE(answer.response.timing.total_us, answer.response.timing.queue_us);
}

TEST(Engine, RefusesABadRequestAndAnswersItsNeighbours) {
  const auto engine = StartWith(std::make_unique<FakeModel>());
  auto before = Predict(engine.get(), GoodInputs());
  const Answer bad = Predict(engine.get(), BadInputs()).get();
  auto after = Predict(engine.get(), GoodInputs());
  EXPECT_EQ(bad.status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(bad.status.message(),
            "feature 'item': id -5 at example 1, position 0 is not in 0..1999 (policy: reject)");
  ExpectGood(before.get());
  ExpectGood(after.get());
}

TEST(Engine, SharesAPoolThatHasAsManySlotsAsItsModel) {
  EngineOptions options;
  options.workers = std::make_shared<WorkerPool>(1);
  const auto before = StartWith(std::make_unique<FakeModel>(), options);
  const auto after = StartWith(std::make_unique<FakeModel>(), options);
  EXPECT_EQ(before->workers(), options.workers);
  EXPECT_EQ(after->workers(), options.workers);
  ExpectGood(Predict(before.get(), GoodInputs()).get());
  ExpectGood(Predict(after.get(), GoodInputs()).get());
  options.workers = std::make_shared<WorkerPool>(2);
  const auto apart = StartWith(std::make_unique<FakeModel>(), options);
  EXPECT_NE(apart->workers(), options.workers);
  ExpectGood(Predict(apart.get(), GoodInputs()).get());
}

TEST(Engine, AnswersAFailedBatchWithTheModelsStatusAndGoesOn) {
  auto model = std::make_unique<FakeModel>();
  std::atomic<int> runs = 0;
  model->before_run = [&runs](const Slot&) {
    return ++runs == 1 ? Internal("the dense program failed") : Status();
  };
  const auto engine = StartWith(std::move(model));
  const Answer failed = Predict(engine.get(), GoodInputs()).get();
  EXPECT_EQ(failed.status.code(), StatusCode::kInternal);
  EXPECT_EQ(failed.status.message(), "the dense program failed");
  ExpectGood(Predict(engine.get(), GoodInputs()).get());
}

TEST(Engine, AnswersABatchInWhichMemoryRanOutAndGoesOn) {
  auto model = std::make_unique<FakeModel>();
  std::atomic<int> runs = 0;
  model->before_run = [&runs](const Slot&) -> Status {
    if (++runs == 1) throw std::bad_alloc();
    return {};
  };
  const auto engine = StartWith(std::move(model));
  const Status failed = Predict(engine.get(), GoodInputs()).get().status;
  EXPECT_EQ(failed.code(), StatusCode::kInternal);
  EXPECT_EQ(failed.message(), "out of memory");
  EXPECT_EQ(failed.reason(), StatusReason::kOutOfMemory);
  ExpectGood(Predict(engine.get(), GoodInputs()).get());
}

TEST(Engine, AnswersARequestWhoseOutputsAreNotFiniteAloneWithWhere) {
  auto model = std::make_unique<FakeModel>();
  model->after_run = [](Slot* slot) {
    if (slot->requests != 3) return;
    // The first request's second score.
    slot->outputs[0][1] = std::numeric_limits<float>::quiet_NaN();
    slot->outputs[1][5] = std::numeric_limits<float>::infinity();  // The third request's profile.
  };
  const auto engine = StartWith(std::move(model));
  std::vector<std::unique_ptr<Request>> requests;
  std::vector<std::future<Answer>> answers;
  for (int i = 0; i < 3; ++i) {
    auto [request, answer] = Ask(GoodInputs());
    requests.push_back(std::move(request));
    answers.push_back(std::move(answer));
  }
  engine->PredictMerged(std::move(requests));
  const Status first = answers[0].get().status;
  EXPECT_EQ(first.code(), StatusCode::kInternal);
  EXPECT_EQ(first.message(), "output 'score' at example 1 is not finite");
  EXPECT_EQ(first.reason(), StatusReason::kNotFinite);
  ExpectGood(answers[1].get());
  EXPECT_EQ(answers[2].get().status.message(), "output 'profile' is not finite");
}

TEST(Engine, AnswersWithoutAnOutputThatIsNotFiniteWhereItIsNotWanted) {
  auto model = std::make_unique<FakeModel>();
  model->after_run = [](Slot* slot) {
    slot->outputs[0][0] = std::numeric_limits<float>::quiet_NaN();
  };
  const auto engine = StartWith(std::move(model));
  auto [request, answer] = Ask(GoodInputs());
  request->outputs_wanted = {1};
  engine->Predict(std::move(request));
  EXPECT_TRUE(answer.get().status.ok());
}

TEST(Engine, RefusesToCutOutputsOfTheWrongSize) {
  auto model = std::make_unique<FakeModel>();
  model->after_run = [](Slot* slot) { slot->outputs[0].pop_back(); };
  const auto engine = StartWith(std::move(model));
  const Answer answer = Predict(engine.get(), GoodInputs()).get();
  EXPECT_EQ(answer.status.code(), StatusCode::kInternal);
  EXPECT_EQ(answer.status.message(), "output 'score': the model gave 1 values, expected 2");
}

TEST(Engine, RefusesAtOnceWhenTheQueueIsFull) {
  Gate gate;
  EngineOptions options;
  options.batching.max_batch_examples = 2;
  options.batching.max_queued_examples = 3;
  const auto engine = StartWith(gate.model(), options);
  auto running = Predict(engine.get(), GoodInputs());
  gate.WaitUntilRunning();
  auto waiting = Predict(engine.get(), GoodInputs());
  EXPECT_EQ(engine->Snapshot().queued.work.examples, 2U);
  const Answer refused = Predict(engine.get(), GoodInputs()).get();
  EXPECT_EQ(refused.status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.status.message(),
            "the queue is full: 2 examples are waiting; try again after a pause");
  gate.Open();
  ExpectGood(running.get());
  ExpectGood(waiting.get());
  EXPECT_EQ(engine->Snapshot().queued.work.examples, 0U);
}

TEST(Engine, RefusesWhatIsLargerThanARequestMayBe) {
  EngineOptions options;
  options.batching.max_request_examples = 1;
  options.batching.max_request_ids = 5;
  const auto engine = StartWith(std::make_unique<FakeModel>(), options);
  EXPECT_EQ(engine->limits().max_examples, 1U);
  EXPECT_EQ(engine->limits().max_ids, 5U);
  const Answer answer = Predict(engine.get(), GoodInputs()).get();
  EXPECT_EQ(answer.status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(answer.status.message(), "num_examples: expected 1..1, got 2");

  auto [request, too_large] = Ask(GoodInputs());
  options.batching = {.max_queued_bytes = 999};
  const auto narrow = StartWith(std::make_unique<FakeModel>(), options);
  request->held_bytes = 1000;
  narrow->Predict(std::move(request));
  const Status refused = too_large.get().status;
  EXPECT_EQ(refused.message(), "request: expected at most 999 bytes, got 1000");
  EXPECT_EQ(refused.reason(), StatusReason::kTooLarge);
}

TEST(Engine, HonoursAPackageThatAllowsMoreThanTheDefaultBatch) {
  Manifest manifest = FakeManifest();
  manifest.limits = {.max_examples = 50000, .max_ids = 1 << 24};
  const auto engine = StartWith(std::make_unique<FakeModel>(manifest));
  EXPECT_EQ(engine->limits().max_examples, 50000U);
  EXPECT_EQ(engine->limits().max_ids, 16777216U);
}

TEST(Engine, AnswersARequestWhoseBatchCouldNotBeFormedAndGoesOn) {
  const auto engine = StartWith(std::make_unique<FakeModel>());
  auto [request, failed] = Ask(GoodInputs());
  request->abandoned = []() -> bool { throw std::bad_alloc(); };
  engine->Predict(std::move(request));
  const Answer answer = failed.get();
  EXPECT_EQ(answer.status.code(), StatusCode::kInternal);
  EXPECT_EQ(answer.status.message(), "out of memory");
  EXPECT_EQ(answer.status.reason(), StatusReason::kOutOfMemory);
  ExpectGood(Predict(engine.get(), GoodInputs()).get());
}

TEST(Engine, AnswersARequestAtItsDeadlineWhetherItWaitsOrRuns) {
  Gate gate;
  const auto engine = StartWith(gate.model());
  const auto predict_due_soon = [&engine] {
    auto [request, answer] = Ask(GoodInputs());
    request->deadline = Clock::now() + std::chrono::milliseconds(20);
    engine->Predict(std::move(request));
    return answer.get();
  };
  // On a busy machine a request may expire before it runs. Then another one is tried.
  Answer ran;
  EXPECT_TRUE(WaitFor([&] {
    ran = predict_due_soon();
    return ran.status.message() == "the deadline passed while the request ran";
  }));
  gate.WaitUntilRunning();
  EXPECT_EQ(ran.status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(ran.status.reason(), StatusReason::kUnstated);
  EXPECT_EQ(ran.response.num_ids, 7U);
  auto rest = Predict(engine.get(), GoodInputs());
  const Clock::time_point before = Clock::now();
  const Answer waited = predict_due_soon();
  EXPECT_GE(Clock::now(), before + std::chrono::milliseconds(20));
  EXPECT_EQ(waited.status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(waited.status.message().starts_with("the deadline"));
  EXPECT_EQ(engine->Snapshot().queued.requests, 1U);
  gate.Open();
  ExpectGood(rest.get());
  engine->Stop();
  const EngineSnapshot snapshot = engine->Snapshot();
  EXPECT_EQ(snapshot.telemetry.batches, 2U);
  // A run whose client has left counts as run, not as answered.
  EXPECT_EQ(snapshot.telemetry.compute_seconds, 33e-6);
  EXPECT_EQ(snapshot.telemetry.unknown_ids, (std::vector<uint64_t>{0, 0, 0, 1, 0}));
}

TEST(Engine, AnswersACancelledRequestAtOnceWhetherItWaitsOrRuns) {
  Gate gate;
  const auto engine = StartWith(gate.model());
  CancellationHandle first_cancellation;
  CancellationHandle second_cancellation;
  auto [first, running] = Ask(GoodInputs());
  first->cancellation = &first_cancellation;
  engine->Predict(std::move(first));
  gate.WaitUntilRunning();
  auto [second, waiting] = Ask(GoodInputs());
  second->cancellation = &second_cancellation;
  engine->Predict(std::move(second));
  EXPECT_EQ(engine->Snapshot().queued.work.ids, 7U);
  engine->Cancel(&second_cancellation, StatusReason::kAbandoned);
  EXPECT_EQ(engine->Snapshot().queued.work.ids, 0U);
  engine->Cancel(&first_cancellation, StatusReason::kAbandoned);
  const Status ran = running.get().status;
  EXPECT_EQ(ran.reason(), StatusReason::kAbandoned);
  EXPECT_EQ(ran.message(), "the client left while the request ran");
  EXPECT_EQ(waiting.get().status.message(), "the client left while the request waited");
  gate.Open();
  ExpectGood(Predict(engine.get(), GoodInputs()).get());
  engine->Cancel(&first_cancellation, StatusReason::kAbandoned);  // Too late to have an effect.
  EXPECT_EQ(engine->Snapshot().telemetry.batches, 2U);
}

TEST(Engine, AFailedBatchAnswersOnlyThoseWhoStillWait) {
  Gate gate;
  auto model = gate.model();
  model->before_run = [before = model->before_run](const Slot& slot) -> Status {
    if (Status status = before(slot); !status.ok()) return status;
    throw std::bad_alloc();
  };
  const auto engine = StartWith(std::move(model));
  CancellationHandle cancellation;
  auto [request, answer] = Ask(GoodInputs());
  request->cancellation = &cancellation;
  engine->Predict(std::move(request));
  gate.WaitUntilRunning();
  engine->Cancel(&cancellation, StatusReason::kAbandoned);
  gate.Open();
  engine->Stop();
  EXPECT_EQ(answer.get().status.reason(), StatusReason::kAbandoned);
}

TEST(Engine, NeverRunsARequestWhoseClientCancelled) {
  Gate gate;
  const auto engine = StartWith(gate.model());
  auto running = Predict(engine.get(), GoodInputs());
  gate.WaitUntilRunning();
  auto [request, left] = Ask(GoodInputs());
  request->abandoned = [] { return true; };
  engine->Predict(std::move(request));
  gate.Open();
  const Status status = left.get().status;
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(status.reason(), StatusReason::kAbandoned);
  ExpectGood(running.get());
  EXPECT_EQ(engine->Snapshot().telemetry.batches, 1U);
}

TEST(Engine, StopAnswersTheAcceptedAndRefusesTheRest) {
  Gate gate;
  const auto engine = StartWith(gate.model());
  std::vector<std::future<Answer>> accepted;
  accepted.push_back(Predict(engine.get(), GoodInputs()));
  gate.WaitUntilRunning();
  for (int i = 0; i < 3; ++i) accepted.push_back(Predict(engine.get(), GoodInputs()));
  gate.Open();
  engine->Stop();
  for (auto& answer : accepted) ExpectGood(answer.get());
  EXPECT_EQ(Predict(engine.get(), GoodInputs()).get().status.code(), StatusCode::kUnavailable);
  auto [request, merged] = Ask(GoodInputs());
  std::vector<std::unique_ptr<Request>> requests;
  requests.push_back(std::move(request));
  engine->PredictMerged(std::move(requests));
  EXPECT_EQ(merged.get().status.code(), StatusCode::kUnavailable);
}

TEST(Engine, PredictMergedRunsTheGoodOnesAsOneBatchAndRefusesTheBad) {
  auto model = std::make_unique<FakeModel>();
  std::vector<size_t> sizes;
  model->before_run = [&sizes](const Slot& slot) {
    sizes.push_back(slot.requests);
    return Status();
  };
  const auto engine = StartWith(std::move(model));
  std::vector<std::unique_ptr<Request>> requests;
  std::vector<std::future<Answer>> answers;
  for (const FakeInputs& inputs : {GoodInputs(), BadInputs(), GoodInputs()}) {
    auto [request, answer] = Ask(inputs);
    requests.push_back(std::move(request));
    answers.push_back(std::move(answer));
  }
  engine->PredictMerged(std::move(requests));
  ExpectGood(answers[0].get());
  EXPECT_EQ(answers[1].get().status.code(), StatusCode::kInvalidArgument);
  ExpectGood(answers[2].get());
  EXPECT_EQ(sizes, std::vector<size_t>{2});
}

TEST(Engine, QueuedAndMergedAreAnsweredOnceAndNeverShareASlot) {
  std::atomic<int> running = 0;  // Batches, in the model's only slot.
  auto model = std::make_unique<FakeModel>();
  model->before_run = [&running](const Slot& slot) {
    EXPECT_EQ(slot.number, 0U);
    EXPECT_EQ(++running, 1);
    for (int i = 0; i < 10; ++i) std::this_thread::yield();
    return Status();
  };
  model->after_run = [&running](Slot*) { --running; };
  const auto engine = StartWith(std::move(model));
  std::atomic<int> good = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&engine, &good, t] {
      for (int i = 0; i < 200; ++i) {
        auto [request, answer] = Ask(GoodInputs());
        if (t % 2 == 0) {
          engine->Predict(std::move(request));
        } else {
          std::vector<std::unique_ptr<Request>> requests;
          requests.push_back(std::move(request));
          engine->PredictMerged(std::move(requests));
        }
        const Answer got = answer.get();
        if (got.status.ok() && got.response.outputs[0].values == kGoodScores) ++good;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 800);
}

TEST(Engine, RefusesOptionsOutOfRange) {
  EngineOptions options;
  options.batching = {.max_batch_examples = 101, .max_queued_examples = 100};
  auto engine = Engine::Start(std::make_unique<FakeModel>(), options);
  EXPECT_EQ(engine.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(engine.status().message(),
            "max_queued_examples: expected at least 101 (max_batch_examples), got 100");
  options = {.batching = {}, .sample_tolerance = -1};
  engine = Engine::Start(std::make_unique<FakeModel>(), options);
  EXPECT_EQ(engine.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(engine.status().message(),
            "sample_tolerance: expected a finite number of at least 0, got -1.000000");
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const auto& [weight, text] :
       {std::pair(-1.0, "-1.000000"), std::pair(0.0, "0.000000"), std::pair(kNan, "nan")}) {
    engine = Engine::Start(std::make_unique<FakeModel>(),
                           {.model_weights = {{"other", 1}, {"ranker", weight}}});
    EXPECT_EQ(engine.status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(
        engine.status().message(),
        std::string("model_weights: 'ranker': expected a finite number above 0, got ") + text);
  }
}

TEST(Engine, RefusesToStartWithoutAModel) {
  const auto engine = Engine::Start(nullptr, {});
  EXPECT_EQ(engine.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(engine.status().message(), "model: expected one, got none");
}

}  // namespace
}  // namespace embershard
