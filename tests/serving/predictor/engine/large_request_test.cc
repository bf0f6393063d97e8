// Requests larger than a batch, from validation to the one answer.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "batching/large_inputs.h"
#include "engine/asking.h"
#include "engine/stepped.h"
#include "testing/wait_for.h"

namespace embershard {
namespace {

EngineOptions Cutting(size_t examples = 16, uint64_t ids = 1 << 20) {
  EngineOptions options;
  options.batching.max_batch_examples = examples;
  options.batching.max_batch_ids = ids;
  return options;
}

std::unique_ptr<FakeModel> LargeModel() { return std::make_unique<FakeModel>(LargeManifest()); }

// A model whose runs stand still until each is let go.
class Steps {
 public:
  std::unique_ptr<FakeModel> model() {
    auto model = LargeModel();
    model->before_run = [this](const Slot& slot) {
      examples_ = slot.examples;
      const int run = ++runs_;
      EXPECT_TRUE(WaitFor([&] { return allowed_ >= run; }));
      return Status();
    };
    return model;
  }
  // Waits until the `run`-th run is blocked. Returns its number of examples.
  size_t WaitForRun(int run) {
    EXPECT_TRUE(WaitFor([&] { return runs_ >= run; }));
    return examples_;
  }
  void Allow(int runs) { allowed_ = runs; }

 private:
  std::atomic<int> runs_ = 0;
  std::atomic<int> allowed_ = 0;
  std::atomic<size_t> examples_ = 0;
};

TEST(LargeRequest, IsAnsweredAsIfItHadRunWhole) {
  const auto whole = StartWith(LargeModel(), Cutting(1000));
  const auto cut = StartWith(LargeModel(), Cutting());
  for (const uint32_t examples : {16U, 17U, 160U, 999U}) {
    const Answer expected = Predict(whole.get(), LargeInputs(examples, true)).get();
    const Answer got = Predict(cut.get(), LargeInputs(examples, true)).get();
    ASSERT_TRUE(expected.status.ok());
    ASSERT_TRUE(got.status.ok()) << got.status.message();
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(got.response.outputs[i].values, expected.response.outputs[i].values);
    }
    EXPECT_EQ(got.response.num_ids, expected.response.num_ids);
    ASSERT_EQ(got.response.unknown_ids.size(), expected.response.unknown_ids.size());
    for (size_t i = 0; i < got.response.unknown_ids.size(); ++i) {
      EXPECT_EQ(got.response.unknown_ids[i].sparse_input,
                expected.response.unknown_ids[i].sparse_input);
      EXPECT_EQ(got.response.unknown_ids[i].count, expected.response.unknown_ids[i].count);
    }
  }
  EXPECT_EQ(whole->Snapshot().telemetry.batches, 4U);
  EXPECT_EQ(cut->Snapshot().telemetry.batches, 1U + 2 + 10 + 63);
}

TEST(LargeRequest, IsAnsweredWholeWhereOthersRunBesideItsChunks) {
  auto model = LargeModel();
  model->num_slots = 3;
  const auto engine = StartWith(std::move(model), Cutting(7));
  std::vector<std::future<Answer>> answers;
  std::vector<uint32_t> sizes;
  for (uint32_t i = 0; i < 300; ++i) {
    sizes.push_back(i % 3 == 0 ? 1 + i % 90 : 1 + i % 5);
    answers.push_back(Predict(engine.get(), LargeInputs(sizes.back())));
  }
  for (size_t i = 0; i < sizes.size(); ++i) ExpectWhole(answers[i].get(), sizes[i]);
}

// Four slots, and requests of 28 examples that are known to take 2.8 milliseconds.
class LongRequests : public ::testing::Test {
 protected:
  LongRequests() {
    auto model = LargeModel();
    model->num_slots = 4;
    model->before_run = [this](const Slot& slot) {
      clock_.Advance(std::chrono::microseconds(100) * slot.examples);
      ++begun_;
      EXPECT_TRUE(WaitFor([this] { return !holds_; }));
      return Status();
    };
    EngineOptions options;
    options.now = clock_.now();
    begun_ = 0;
    engine_ = StartWith(std::move(model), options);
    // Before the fifth begins, each of four slots has been free again and the batch's cost is
    // known.
    for (int i = 0; i < 5; ++i) ExpectWhole(Predict(engine_.get(), LargeInputs(28)).get(), 28);
  }

  uint64_t Batches() const { return engine_->Snapshot().telemetry.batches; }

  SteppedClock clock_{Clock::now()};
  std::atomic<int> begun_ = 0;
  std::atomic<bool> holds_ = false;
  std::unique_ptr<Engine> engine_;
};

TEST_F(LongRequests, RunInAllSlotsThatStandIdle) {
  for (int i = 0; i < 3; ++i) {  // Later rounds also know the cost of chunks.
    EXPECT_TRUE(WaitFor([&] {    // Tries until all slots are free again.
      const int before = begun_;
      holds_ = true;
      auto answer = Predict(engine_.get(), LargeInputs(28));
      const bool at_once = WaitFor([&] { return begun_ == before + 4; }, std::chrono::seconds(1));
      holds_ = false;
      ExpectWhole(answer.get(), 28);
      return at_once;
    }));
  }
}

TEST_F(LongRequests, AreNotCutWhereNobodyGainsFromIt) {
  const uint64_t before = Batches();
  auto [batch, answer] = Ask(LargeInputs(28));
  batch->priority = Priority::kBackground;
  engine_->Predict(std::move(batch));
  ExpectWhole(answer.get(), 28);
  EXPECT_EQ(Batches(), before + 1);
  auto [profile, of_request] = Ask(LargeInputs(28));
  profile->outputs_wanted = {1};
  engine_->Predict(std::move(profile));
  EXPECT_EQ(of_request.get().response.outputs[0].values, kLargeProfile);
  EXPECT_EQ(Batches(), before + 2);
}

TEST(LargeRequest, CountsAsOneRequestWithItsUnknownIdsOnce) {
  const auto engine = StartWith(LargeModel(), Cutting(10));
  const Answer answer = Predict(engine.get(), LargeInputs(30, true)).get();
  ExpectWhole(Predict(engine.get(), LargeInputs(30)).get(), 30);
  engine->Stop();
  // History 100, and i % 3 genres of each example.
  ASSERT_EQ(answer.response.unknown_ids.size(), 2U);
  EXPECT_EQ(answer.response.unknown_ids[0].count, 1U);
  EXPECT_EQ(answer.response.unknown_ids[1].count, 30U);
  EXPECT_EQ(answer.response.timing.lookup_us, 33U);  // Three runs of 11 us.
  EXPECT_EQ(answer.response.timing.dense_us, 66U);
  const TelemetrySnapshot counted = engine->Snapshot().telemetry;
  EXPECT_EQ(counted.unknown_ids, (std::vector<uint64_t>{0, 0, 2, 30, 0}));
  EXPECT_EQ(counted.batches, 6U);
  for (const NamedHistogram& histogram : counted.histograms) {
    const std::string name = histogram.name;
    if (name == "queue_seconds" || name == "request_examples" || name == "request_ids") {
      const std::vector<uint64_t>& counts = histogram.values.counts;
      EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), uint64_t{0}), 2U) << name;
    }
  }
}

TEST(LargeRequest, IsCutAtTheIdsOfABatchToo) {
  // 3 ids of the request, and 12 in three examples.
  const auto engine = StartWith(LargeModel(), Cutting(1000, 15));
  ExpectWhole(Predict(engine.get(), LargeInputs(30)).get(), 30);
  EXPECT_GT(engine->Snapshot().telemetry.batches, 3U);
}

TEST(LargeRequest, OneExampleWithMoreIdsThanABatchRunsAlone) {
  const auto engine = StartWith(LargeModel(), Cutting(1000, 2));
  ExpectWhole(Predict(engine.get(), LargeInputs(1)).get(), 1);
  EXPECT_EQ(engine->Snapshot().telemetry.batches, 1U);
}

TEST(LargeRequest, RefusalsAndFailuresNameTheExampleOfTheWhole) {
  auto model = LargeModel();
  model->after_run = [](Slot* slot) {
    for (size_t b = 0; b < slot->examples; ++b) {
      if (slot->example_dense[2 * b] == 29) {  // The price.
        slot->outputs[0][b] = std::numeric_limits<float>::infinity();
      }
    }
  };
  const auto engine = StartWith(std::move(model), Cutting(8));
  Answer answer = Predict(engine.get(), LargeInputs(64)).get();
  EXPECT_EQ(answer.status.message(), "output 'score' at example 29 is not finite");
  EXPECT_EQ(answer.status.reason(), StatusReason::kNotFinite);
  EXPECT_TRUE(answer.response.outputs.empty());
  EXPECT_GT(answer.response.num_ids, 64U);
  engine->Stop();
  EXPECT_EQ(engine->Snapshot().telemetry.batches, 4U);  // Not one after it.
  EXPECT_EQ(engine->Snapshot().queued.requests, 0U);

  const auto other = StartWith(LargeModel(), Cutting(8));
  FakeInputs inputs = LargeInputs(64);
  inputs.sparse[1].values[40] = -5;
  answer = Predict(other.get(), inputs).get();
  EXPECT_EQ(answer.status.message(),
            "feature 'item': id -5 at example 40, position 0 is not in 0..1999 (policy: reject)");
}

TEST(LargeRequest, IsAnsweredOnceWhereAChunkFails) {
  auto model = LargeModel();
  model->before_run = [](const Slot& slot) {
    return slot.example_dense[0] == 16 ? Internal("broken") : Status();
  };
  const auto engine = StartWith(std::move(model), Cutting(8));
  const Answer answer = Predict(engine.get(), LargeInputs(64)).get();
  EXPECT_EQ(answer.status.message(), "broken");
  ExpectWhole(Predict(engine.get(), LargeInputs(12)).get(), 12);
  engine->Stop();
  EXPECT_EQ(engine->Snapshot().telemetry.batches, 3U + 2);
}

TEST(LargeRequest, LetsSmallOnesRunBetweenItsChunks) {
  Steps steps;
  const auto engine = StartWith(steps.model(), Cutting(10));
  auto large = Predict(engine.get(), LargeInputs(30));
  EXPECT_EQ(steps.WaitForRun(1), 10U);
  auto small = Predict(engine.get(), LargeInputs(2));
  auto other = Predict(engine.get(), LargeInputs(3));
  EXPECT_EQ(engine->Snapshot().queued.requests, 3U);
  EXPECT_EQ(engine->Snapshot().queued.work.examples, 25U);
  steps.Allow(1);
  EXPECT_EQ(steps.WaitForRun(2), 5U);
  steps.Allow(2);
  ExpectWhole(small.get(), 2);
  ExpectWhole(other.get(), 3);
  EXPECT_EQ(steps.WaitForRun(3), 10U);
  EXPECT_EQ(large.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  steps.Allow(4);
  ExpectWhole(large.get(), 30);
}

TEST(LargeRequest, RunsInAllSlotsAtOnce) {
  Steps steps;
  auto model = steps.model();
  model->num_slots = 3;
  const auto engine = StartWith(std::move(model), Cutting(10));
  auto large = Predict(engine.get(), LargeInputs(40));
  steps.WaitForRun(3);  // No run has been released.
  steps.Allow(4);
  ExpectWhole(large.get(), 40);
  engine->Stop();
  EXPECT_EQ(engine->Snapshot().telemetry.batches, 4U);
}

TEST(LargeRequest, IsCutByDefaultWhereSeveralSlotsShareItsWork) {
  for (const size_t slots : {size_t{1}, size_t{2}}) {
    auto model = LargeModel();
    model->num_slots = slots;
    const auto engine = StartWith(std::move(model), {});
    ExpectWhole(Predict(engine.get(), LargeInputs(1000)).get(), 1000);
    engine->Stop();
    EXPECT_EQ(engine->Snapshot().telemetry.batches, slots == 1 ? 1U : 4U);
  }
}

TEST(LargeRequest, IsAnsweredAtItsDeadlineAndNoMoreOfItRuns) {
  Steps steps;
  SteppedClock clock(Clock::now());
  EngineOptions options = Cutting(10);
  options.now = clock.now();
  const auto engine = StartWith(steps.model(), std::move(options));
  auto [request, answer] = Ask(LargeInputs(30));
  request->deadline = clock.now()() + std::chrono::milliseconds(20);
  engine->Predict(std::move(request));
  const size_t first = steps.WaitForRun(1);
  clock.Advance(std::chrono::milliseconds(21));
  const Answer early = answer.get();  // While the first chunk runs.
  EXPECT_EQ(first, 10U);
  EXPECT_EQ(early.status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(early.response.num_ids, 3U + 30 + 30 + 15);
  EXPECT_EQ(engine->Snapshot().queued.requests, 0U);
  steps.Allow(2);
  ExpectWhole(Predict(engine.get(), LargeInputs(2)).get(), 2);
  engine->Stop();
  EXPECT_EQ(engine->Snapshot().telemetry.batches, 2U);
}

TEST(LargeRequest, LeavesWithItsClient) {
  Steps steps;
  const auto engine = StartWith(steps.model(), Cutting(10));
  CancellationHandle cancellation;
  auto [request, answer] = Ask(LargeInputs(30));
  request->cancellation = &cancellation;
  engine->Predict(std::move(request));
  steps.WaitForRun(1);
  engine->Cancel(&cancellation, StatusReason::kAbandoned);
  EXPECT_EQ(answer.get().status.reason(), StatusReason::kAbandoned);
  EXPECT_EQ(cancellation.request, nullptr);
  engine->Cancel(&cancellation, StatusReason::kAbandoned);  // A second cancellation has no effect.
  EXPECT_EQ(engine->Snapshot().queued.work.examples, 0U);

  // A request whose client is seen to have left when the engine asks.
  std::atomic<bool> gone = false;
  auto [asked, asked_answer] = Ask(LargeInputs(30));
  asked->abandoned = [&gone] { return gone.load(); };
  engine->Predict(std::move(asked));
  steps.Allow(1);
  steps.WaitForRun(2);
  gone = true;
  steps.Allow(2);
  EXPECT_EQ(asked_answer.get().status.reason(), StatusReason::kAbandoned);
  engine->Stop();
  EXPECT_EQ(engine->Snapshot().telemetry.batches, 2U);
}

TEST(LargeRequest, LeavesWithItsClientWhileOthersOfItsChunksRun) {
  for (int round = 0; round < 20; ++round) {
    Steps steps;
    auto model = steps.model();
    model->num_slots = 2;
    const auto engine = StartWith(std::move(model), Cutting(10));
    std::atomic<bool> gone = false;
    auto [request, answer] = Ask(LargeInputs(30));
    request->abandoned = [&gone] { return gone.load(); };
    engine->Predict(std::move(request));
    steps.WaitForRun(2);
    gone = true;
    steps.Allow(2);  // One of the two runs asks for the third chunk, perhaps while the other ends.
    EXPECT_EQ(answer.get().status.reason(), StatusReason::kAbandoned);
    engine->Stop();
    EXPECT_EQ(engine->Snapshot().telemetry.batches, 2U);
  }
}

TEST(LargeRequest, IsAnsweredWholeWhereTheEngineStops) {
  Steps steps;
  const auto engine = StartWith(steps.model(), Cutting(10));
  auto answer = Predict(engine.get(), LargeInputs(30));
  steps.WaitForRun(1);
  std::thread stopper([&engine] { engine->Stop(); });
  steps.Allow(3);
  ExpectWhole(answer.get(), 30);
  stopper.join();
}

TEST(LargeRequest, OfPriorityBackgroundIsAnsweredToo) {
  const auto engine = StartWith(LargeModel(), Cutting(10));
  auto [request, answer] = Ask(LargeInputs(95));
  request->priority = Priority::kBackground;
  engine->Predict(std::move(request));
  ExpectWhole(answer.get(), 95);
}

TEST(LargeRequest, OfSeveralThreadsAreAllAnswered) {
  const auto engine = StartWith(LargeModel(), Cutting(10));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&engine] {
      for (uint32_t i = 0; i < 50; ++i) {
        const uint32_t examples = i % 5 == 0 ? 60 + i : 1 + i % 10;
        ExpectWhole(Predict(engine.get(), LargeInputs(examples)).get(), examples);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(engine->Snapshot().queued.requests, 0U);
}

TEST(LargeRequest, RunsInChunksWithoutTheQueueToo) {
  const auto engine = StartWith(LargeModel(), Cutting(10));
  auto [large, large_answer] = Ask(LargeInputs(25));
  auto [small, small_answer] = Ask(LargeInputs(4));
  auto [other, other_answer] = Ask(LargeInputs(6));
  std::vector<std::unique_ptr<Request>> requests;
  for (auto* request : {&large, &small, &other}) requests.push_back(std::move(*request));
  engine->PredictMerged(std::move(requests));
  ExpectWhole(large_answer.get(), 25);
  ExpectWhole(small_answer.get(), 4);
  ExpectWhole(other_answer.get(), 6);
  EXPECT_EQ(engine->Snapshot().telemetry.batches, 1U + 3);
}

TEST(LargeRequest, BeyondWhatTheQueueCanHoldIsRefusedOnce) {
  EngineOptions options = Cutting(10);
  options.batching.max_queued_examples = 40;
  const auto engine = StartWith(LargeModel(), options);
  EXPECT_EQ(engine->limits().max_examples, 40U);
  EXPECT_EQ(Predict(engine.get(), LargeInputs(41)).get().status.message(),
            "num_examples: expected 1..40, got 41");
  ExpectWhole(Predict(engine.get(), LargeInputs(40)).get(), 40);
}

}  // namespace
}  // namespace embershard
