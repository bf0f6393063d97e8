// An engine's counts of known traffic. The adapters count how calls end.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/asking.h"
#include "engine/engine.h"

namespace embershard {
namespace {

using Counts = std::vector<uint64_t>;

struct Size {
  uint64_t count = 0;
  double sum = 0;

  bool operator==(const Size&) const = default;
};

void PrintTo(const Size& size, std::ostream* out) { *out << size.count << ": " << size.sum; }

Size SizeOf(const EngineSnapshot& snapshot, const std::string& histogram) {
  Size size;
  for (const auto& [name, values] : snapshot.telemetry.histograms) {
    if (name != histogram) continue;
    size.sum = values.sum;
    for (const uint64_t count : values.counts) size.count += count;
  }
  return size;
}

TEST(EngineSnapshot, NamesWhatIsServed) {
  EngineOptions options;
  options.batching.max_batch_examples = 16;
  const auto engine = StartWith(std::make_unique<FakeModel>(), options);
  const EngineSnapshot snapshot = engine->Snapshot();
  EXPECT_EQ(snapshot.model, "fake");
  EXPECT_EQ(snapshot.version, 3);
  EXPECT_EQ(snapshot.sparse_inputs,
            (std::vector<std::string>{"user", "item", "history", "genre", "tag"}));
  EXPECT_EQ(snapshot.max_batch_examples, 16U);
  EXPECT_EQ(snapshot.telemetry.unknown_ids, (Counts{0, 0, 0, 0, 0}));
}

TEST(EngineSnapshot, CountsValidQueuedAndRunningRequests) {
  Gate gate;
  EngineOptions options;
  options.batching.max_batch_examples = 8;
  const auto engine = StartWith(gate.model(), options);
  std::vector<std::future<Answer>> answers;
  answers.push_back(Predict(engine.get(), GoodInputs()));
  gate.WaitUntilRunning();
  for (int i = 0; i < 3; ++i) answers.push_back(Predict(engine.get(), GoodInputs()));
  EXPECT_FALSE(Predict(engine.get(), BadInputs()).get().status.ok());

  EngineSnapshot snapshot = engine->Snapshot();
  EXPECT_EQ(snapshot.queued.requests, 3U);
  EXPECT_EQ(snapshot.queued.work.examples, 6U);
  EXPECT_EQ(snapshot.queued.work.ids, 21U);
  EXPECT_EQ(SizeOf(snapshot, "request_examples"), (Size{4, 8}));
  EXPECT_EQ(SizeOf(snapshot, "request_ids"), (Size{4, 28}));  // user 1, item 2, history 2, genre 2.
  EXPECT_EQ(SizeOf(snapshot, "batch_requests"), (Size{0, 0}));

  gate.Open();
  for (auto& answer : answers) ExpectGood(answer.get());
  snapshot = engine->Snapshot();
  EXPECT_EQ(snapshot.queued.requests, 0U);
  EXPECT_EQ(snapshot.queued.work.ids, 0U);
  EXPECT_EQ(snapshot.telemetry.batches, 2U);
  EXPECT_EQ(SizeOf(snapshot, "batch_requests"), (Size{2, 4}));
  EXPECT_EQ(SizeOf(snapshot, "batch_examples"), (Size{2, 8}));
  EXPECT_EQ(SizeOf(snapshot, "batch_fill"), (Size{2, 1.0}));        // 2 of 8, then 6 of 8.
  EXPECT_EQ(SizeOf(snapshot, "lookup_seconds"), (Size{2, 22e-6}));  // The fake model's 11 us.
  EXPECT_EQ(SizeOf(snapshot, "dense_seconds"), (Size{2, 44e-6}));
  EXPECT_EQ(snapshot.telemetry.compute_seconds, 4 * 33e-6);
  EXPECT_EQ(SizeOf(snapshot, "queue_seconds").count, 4U);
  EXPECT_GT(SizeOf(snapshot, "queue_seconds").sum, 0);
  EXPECT_EQ(snapshot.telemetry.unknown_ids, (Counts{0, 0, 0, 4, 0}));
}

TEST(EngineSnapshot, OfABatchThatFailedKnowsHowLongItsRequestsWaited) {
  auto model = std::make_unique<FakeModel>();
  model->before_run = [](const Slot&) { return Internal("the dense program failed"); };
  const auto engine = StartWith(std::move(model));
  EXPECT_FALSE(Predict(engine.get(), GoodInputs()).get().status.ok());
  const EngineSnapshot snapshot = engine->Snapshot();
  EXPECT_EQ(snapshot.telemetry.batches, 1U);
  EXPECT_EQ(SizeOf(snapshot, "queue_seconds").count, 1U);
  for (const char* name : {"lookup_seconds", "dense_seconds", "batch_requests", "batch_examples"}) {
    EXPECT_EQ(SizeOf(snapshot, name), (Size{0, 0})) << name;
  }
  EXPECT_EQ(snapshot.telemetry.unknown_ids, (Counts{0, 0, 0, 0, 0}));
}

TEST(EngineSnapshot, CountsUnknownIdsOfAnswersOnly) {
  auto model = std::make_unique<FakeModel>();
  model->after_run = [](Slot* slot) {
    slot->outputs[0][0] = std::numeric_limits<float>::quiet_NaN();
  };
  const auto engine = StartWith(std::move(model));
  std::vector<std::unique_ptr<Request>> requests;
  std::vector<std::future<Answer>> answers;
  for (int i = 0; i < 2; ++i) {
    auto [request, answer] = Ask(GoodInputs());
    requests.push_back(std::move(request));
    answers.push_back(std::move(answer));
  }
  engine->PredictMerged(std::move(requests));
  EXPECT_FALSE(answers[0].get().status.ok());
  EXPECT_TRUE(answers[1].get().status.ok());
  const EngineSnapshot snapshot = engine->Snapshot();
  EXPECT_EQ(snapshot.telemetry.unknown_ids, (Counts{0, 0, 0, 1, 0}));
  EXPECT_EQ(SizeOf(snapshot, "batch_requests"), (Size{1, 2}));
  EXPECT_EQ(snapshot.telemetry.compute_seconds, 33e-6);  // Time of one batch.
}

TEST(EngineSnapshot, LeavesOutWhatTheSamplesCostTheDevices) {
  auto model = std::make_unique<FakeModel>(FakeManifest(), std::vector{GoodSample(), GoodSample()});
  const auto runs = std::make_shared<std::atomic<uint64_t>>(0);
  model->before_run = [runs](const Slot&) {
    ++*runs;
    return Status();
  };
  model->loads = [runs] {
    return std::vector<DeviceLoad>{{.name = "fake:0",
                                    .table_bytes = 640,
                                    .lookup_ns = 11000 * *runs,
                                    .batches = *runs,
                                    .rows = 7 * *runs}};
  };
  const auto engine = StartWith(std::move(model));
  EXPECT_EQ(*runs, 4U);  // Each sample alone, and both merged, by two threads.
  ExpectGood(Predict(engine.get(), GoodInputs()).get());
  const std::vector<DeviceLoad> devices = engine->Snapshot().devices;
  ASSERT_EQ(devices.size(), 1U);
  EXPECT_EQ(devices[0].name, "fake:0");
  EXPECT_EQ(devices[0].table_bytes, 640U);
  EXPECT_EQ(devices[0].lookup_ns, 11000U);
  EXPECT_EQ(devices[0].batches, 1U);
  EXPECT_EQ(devices[0].rows, 7U);
}

TEST(EngineSnapshot, LosesNothingOfThreadsAskingQueuedAndMergedWhileItIsRead) {
  const auto engine = StartWith(std::make_unique<FakeModel>());
  std::atomic<int> running = 4;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&engine, &running, t] {
      for (int i = 0; i < 200; ++i) {
        auto [request, answer] = Ask(GoodInputs());
        if (t % 2 == 0) {
          engine->Predict(std::move(request));
        } else {
          std::vector<std::unique_ptr<Request>> requests;
          requests.push_back(std::move(request));
          engine->PredictMerged(std::move(requests));
        }
        EXPECT_TRUE(answer.get().status.ok());
      }
      --running;
    });
  }
  while (running > 0) {
    EXPECT_LE(SizeOf(engine->Snapshot(), "batch_requests").sum, 800);
  }
  for (std::thread& thread : threads) thread.join();
  const EngineSnapshot snapshot = engine->Snapshot();
  EXPECT_EQ(SizeOf(snapshot, "request_ids"), (Size{800, 5600}));
  EXPECT_EQ(SizeOf(snapshot, "batch_requests").sum, 800);
  EXPECT_EQ(SizeOf(snapshot, "batch_examples").sum, 1600);
  EXPECT_EQ(SizeOf(snapshot, "batch_examples").count, snapshot.telemetry.batches);
  EXPECT_EQ(SizeOf(snapshot, "queue_seconds").count, 800U);
  EXPECT_EQ(snapshot.telemetry.unknown_ids, (Counts{0, 0, 0, 800, 0}));
}

}  // namespace
}  // namespace embershard
