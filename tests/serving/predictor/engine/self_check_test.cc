#include "engine/self_check.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <functional>
#include <limits>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/background.h"
#include "batching/fake_model.h"
#include "engine/asking.h"
#include "engine/engine.h"

namespace embershard {
namespace {

Status StartStatus(
    std::vector<SampleRequest> samples, std::function<void(Slot*)> after_run = [](Slot*) {}) {
  auto model = std::make_unique<FakeModel>(FakeManifest(), std::move(samples));
  model->after_run = std::move(after_run);
  return Engine::Start(std::move(model), {}).status();
}

// How many samples, of two examples each, ran in each batch of a start with two samples.
std::vector<size_t> SizesAtStart(const BatchingOptions& batching) {
  std::vector<size_t> sizes;
  auto model = std::make_unique<FakeModel>(FakeManifest(),
                                           std::vector<SampleRequest>{GoodSample(), GoodSample()});
  model->after_run = [&sizes](Slot* slot) { sizes.push_back(slot->requests); };
  const Status status = Engine::Start(std::move(model), {.batching = batching}).status();
  EXPECT_TRUE(status.ok()) << status.message();
  return sizes;
}

TEST(SelfCheck, RunsEachSampleAloneAndAllMergedAndAFullBatch) {
  EXPECT_EQ(SizesAtStart({.merge_examples = 9}), (std::vector<size_t>{1, 1, 2, 4}));
}

TEST(SelfCheck, RunsAllSamplesMergedIfAFullBatchIsSmaller) {
  EXPECT_EQ(SizesAtStart({.merge_examples = 1}), (std::vector<size_t>{1, 1, 2, 2}));
}

TEST(SelfCheck, FillsABatchUpToItsIds) {  // A sample has 7 ids.
  EXPECT_EQ(SizesAtStart({.max_request_ids = 30, .max_batch_ids = 30}),
            (std::vector<size_t>{1, 1, 2, 4}));
}

TEST(SelfCheck, RunsInTheBackgroundWhereRequestsNeverDo) {
  std::vector<int> policies;  // Policies of the threads that run the model.
  auto model = std::make_unique<FakeModel>(FakeManifest(),
                                           std::vector<SampleRequest>{GoodSample(), GoodSample()});
  model->after_run = [&policies](Slot*) { policies.push_back(sched_getscheduler(0)); };
  Background background;
  auto engine = Engine::Start(std::move(model), {}, {.background = &background});
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  auto [request, answer] = Ask(GoodInputs());
  request->may_run_inline = false;  // The engine's own thread is to run it.
  (*engine)->Predict(std::move(request));
  ExpectGood(answer.get());
  EXPECT_EQ(policies, (std::vector<int>{SCHED_IDLE, SCHED_IDLE, SCHED_IDLE, SCHED_IDLE,
                                        sched_getscheduler(0)}));
}

TEST(SelfCheck, RunsAFullBatchInEachSlotOfTheModelOnTheLoadersThread) {
  std::vector<std::thread::id> threads;
  std::vector<size_t> full;  // Slots of the full batches.
  auto model = std::make_unique<FakeModel>(FakeManifest(),
                                           std::vector<SampleRequest>{GoodSample(), GoodSample()});
  model->num_slots = 3;
  model->after_run = [&](Slot* slot) {
    threads.push_back(std::this_thread::get_id());
    if (slot->requests > 2) full.push_back(slot->number);
  };
  auto engine = Engine::Start(std::move(model), {});
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  EXPECT_EQ(threads, std::vector<std::thread::id>(6, std::this_thread::get_id()));
  EXPECT_EQ(full, (std::vector<size_t>{0, 1, 2}));
}

TEST(SelfCheck, OneThatFailsInTheBackgroundEndsThere) {
  SampleRequest wrong = GoodSample();
  wrong.outputs[0][1] = 256.5;
  auto model =
      std::make_unique<FakeModel>(FakeManifest(), std::vector<SampleRequest>{std::move(wrong)});
  int policy = -1;
  const auto tell = [&policy](void*) { policy = sched_getscheduler(0); };
  model->loads = [end = std::shared_ptr<void>(nullptr, tell)] { return std::vector<DeviceLoad>(); };
  Background background;
  EXPECT_EQ(Engine::Start(std::move(model), {}, {.background = &background}).status().code(),
            StatusCode::kBadPackage);
  EXPECT_EQ(policy, SCHED_IDLE);
}

TEST(SelfCheck, RefusesAPackageWhoseSamplesGiveOtherOutputs) {
  SampleRequest wrong = GoodSample();
  wrong.outputs[0][1] = 256.5;
  const Status status = StartStatus({GoodSample(), wrong});
  EXPECT_EQ(status.code(), StatusCode::kBadPackage);
  EXPECT_EQ(status.message(),
            "samples.safetensors: sample 1: output 'score' at example 1: expected 256.5, got "
            "256.75 (tolerance 1e-05)");
}

TEST(SelfCheck, MeasuresOutputsBeyondOneRelatively) {
  SampleRequest close = GoodSample();
  close.outputs[0][1] = 256.751;  // 1e-3 away, 4e-6 of it.
  EXPECT_TRUE(StartStatus({close}).ok());
}

TEST(SelfCheck, AllowsWhatTheToleranceAllows) {
  SampleRequest close = GoodSample();
  close.outputs[0][1] = 256.76F;  // 1e-2 away, 4e-5 of it.
  EXPECT_EQ(StartStatus({close}).code(), StatusCode::kBadPackage);
  auto model = std::make_unique<FakeModel>(FakeManifest(), std::vector<SampleRequest>{close});
  const EngineOptions options = {.batching = {}, .sample_tolerance = 1e-4F};
  EXPECT_TRUE(Engine::Start(std::move(model), options).ok());
}

TEST(SelfCheck, AllowsABfloat16ProgramAHundredTimesAsMuch) {
  for (const auto& [expected, good] : {std::pair(256.76F, true), std::pair(257.2F, false)}) {
    SampleRequest sample = GoodSample();
    sample.outputs[0][1] = expected;  // 4e-5 and 2e-3 of it away.
    Manifest manifest = FakeManifest();
    manifest.program.type = DenseType::kBfloat16;
    auto model =
        std::make_unique<FakeModel>(std::move(manifest), std::vector<SampleRequest>{sample});
    EXPECT_EQ(Engine::Start(std::move(model), {}).ok(), good) << expected;
  }
}

TEST(SelfCheck, AllowsLayersThatRoundAThousandTimesAsMuch) {
  for (const auto& [expected, good] : {std::pair(258.3F, true), std::pair(261.0F, false)}) {
    SampleRequest sample = GoodSample();
    sample.outputs[0][1] = expected;  // 6e-3 and 1.7e-2 of it away.
    auto model = std::make_unique<FakeModel>(FakeManifest(), std::vector<SampleRequest>{sample});
    model->rounds = true;
    EXPECT_EQ(Engine::Start(std::move(model), {}).ok(), good) << expected;
  }
}

TEST(SelfCheck, RefusesAModelThatIsRightOnlyWhenAlone) {
  const Status status = StartStatus({GoodSample(), GoodSample()}, [](Slot* slot) {
    if (slot->requests > 1) slot->outputs[1][3] = 4;
  });
  EXPECT_EQ(status.code(), StatusCode::kBadPackage);
  EXPECT_EQ(status.message(),
            "samples.safetensors: sample 1: merged with the others: output 'profile' at example 0: "
            "expected 3, got 4 (tolerance 1e-05)");
}

TEST(SelfCheck, RefusesAModelThatGivesNan) {
  const Status status = StartStatus({GoodSample()}, [](Slot* slot) {
    slot->outputs[0][0] = std::numeric_limits<float>::quiet_NaN();
  });
  EXPECT_EQ(status.code(), StatusCode::kBadPackage);
  EXPECT_EQ(status.message(),
            "samples.safetensors: sample 0: output 'score' at example 0 is not finite");
}

TEST(SelfCheck, RefusesAPackageThatExpectsNan) {
  SampleRequest wrong = GoodSample();
  wrong.outputs[1][0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(StartStatus({wrong}).message(),
            "samples.safetensors: sample 0: output 'profile' at example 0: expected nan, got 30 "
            "(tolerance 1e-05)");
}

TEST(SelfCheck, RefusesAnInvalidSample) {
  SampleRequest wrong = GoodSample();
  wrong.values[0] = 10;
  const Status status = StartStatus({wrong});
  EXPECT_EQ(status.code(), StatusCode::kBadPackage);
  EXPECT_EQ(status.message(),
            "samples.safetensors: sample 0: feature 'user': id 10 at position 0 is not in 0..9 "
            "(policy: reject)");
}

TEST(SelfCheck, RefusesASampleWithoutAnOutput) {
  SampleRequest wrong = GoodSample();
  wrong.outputs.pop_back();
  EXPECT_EQ(StartStatus({wrong}).message(),
            "samples.safetensors: sample 0: expected 2 outputs, got 1");
}

}  // namespace
}  // namespace embershard
