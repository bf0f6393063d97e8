#include "registry/shadow.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <latch>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "engine/asking.h"
#include "registry/served_models.h"
#include "testing/wait_for.h"

namespace embershard {
namespace {

constexpr int64_t kStable = 3;
constexpr int64_t kShadowed = 4;

std::unique_ptr<FakeModel> ShadowModel() {
  Manifest manifest = FakeManifest();
  manifest.version = kShadowed;
  return std::make_unique<FakeModel>(std::move(manifest));
}

HistogramSnapshot HistogramOf(const TelemetrySnapshot& counted, std::string_view name) {
  for (const NamedHistogram& histogram : counted.histograms) {
    if (histogram.name == name) return histogram.values;
  }
  ADD_FAILURE() << "no histogram " << name;
  return {};
}

uint64_t Observations(const TelemetrySnapshot& counted, std::string_view name) {
  const std::vector<uint64_t> counts = HistogramOf(counted, name).counts;
  return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
}

uint64_t Compared(const TelemetrySnapshot& counted) {
  return Observations(counted, "shadow_difference");
}

// Version 3, and version 4 as its shadow, that gets every request.
class Shadowing {
 public:
  explicit Shadowing(std::unique_ptr<FakeModel> shadow,
                     ShadowOptions options = {.share = 1, .time = 1},
                     std::unique_ptr<FakeModel> stable = std::make_unique<FakeModel>(),
                     const EngineOptions& of_shadow = {})
      : served_({}, options) {
    stable_ = served_.Own(StartWith(std::move(stable)));
    shadow_ = served_.Own(StartWith(std::move(shadow), of_shadow));
    Serve(kStable);
  }

  void Serve(int64_t default_version) {
    served_.Serve({.name = "fake",
                   .versions = {{kStable, stable_}, {kShadowed, shadow_}},
                   .default_version = default_version,
                   .labels = {{"shadow", kShadowed}}});
  }

  Answer Ask() { return Begin().get(); }
  Answer AskFor(const FakeInputs& inputs) {
    auto [request, answer] = embershard::Ask(inputs);
    Give(std::move(request));
    return answer.get();
  }
  void Give(std::unique_ptr<Request> request) {
    served_.shadow().Predict(stable_.get(), std::move(request));
  }
  std::future<Answer> Begin(Clock::time_point deadline = Clock::time_point::max(),
                            uint64_t held_bytes = 0) {
    auto [request, answer] = embershard::Ask(GoodInputs());
    request->deadline = deadline;
    request->held_bytes = held_bytes;
    served_.shadow().Predict(stable_.get(), std::move(request));
    return std::move(answer);
  }

  const std::shared_ptr<Engine>& shadow() const { return shadow_; }
  TelemetrySnapshot Counted() const { return shadow_->telemetry().Read(); }
  uint64_t Compared() const { return embershard::Compared(Counted()); }
  HistogramSnapshot Differences() const { return HistogramOf(Counted(), "shadow_difference"); }

  uint64_t Dropped() const {
    const auto dropped = Counted().shadow_dropped;
    return std::accumulate(dropped.begin(), dropped.end(), uint64_t{0});
  }
  uint64_t Dropped(ShadowDrop why) const {
    return Counted().shadow_dropped[static_cast<size_t>(why)];
  }
  // Waits until that many requests were copied or dropped, which happens after their answers.
  [[nodiscard]] bool WaitForSampled(uint64_t requests) const {
    return WaitFor([this, requests] { return Counted().shadow_sent + Dropped() == requests; });
  }

 private:
  ServedModels served_;
  std::shared_ptr<Engine> stable_;
  std::shared_ptr<Engine> shadow_;
};

TEST(Shadow, ComparesTheScoresOfACopyWithThoseGiven) {
  auto model = ShadowModel();
  model->after_run = [](Slot* slot) { slot->outputs[0][0] += 0.25F; };
  Shadowing shadowing(std::move(model));
  const Answer answer = shadowing.Ask();
  ASSERT_TRUE(answer.status.ok()) << answer.status.message();
  // The version's scores, not the shadow's.
  EXPECT_EQ(answer.response.outputs[0].values, kGoodScores);
  EXPECT_TRUE(WaitFor([&] { return shadowing.Compared() == 1; }));
  EXPECT_NEAR(shadowing.Differences().sum, 0.25, 1e-6);
  EXPECT_EQ(shadowing.Counted().shadow_sent, 1U);
  EXPECT_EQ(shadowing.Counted().shadow_failed, 0U);
}

TEST(Shadow, CopiesDoNotCountAsRequestsThatWaited) {
  EngineOptions cutting;  // Both examples of a copy run apart.
  cutting.batching.max_batch_examples = 1;
  // With kShadowed, copies go through the queue of requests.
  for (const int64_t default_version : {kStable, kShadowed}) {
    for (const EngineOptions& options : {EngineOptions(), cutting}) {
      Shadowing shadowing(ShadowModel(), {.share = 1, .time = 1}, std::make_unique<FakeModel>(),
                          options);
      shadowing.Serve(default_version);
      EXPECT_TRUE(shadowing.Ask().status.ok());
      EXPECT_TRUE(WaitFor([&] { return shadowing.Compared() == 1; }));
      EXPECT_EQ(Observations(shadowing.Counted(), "queue_seconds"), 0U);
    }
  }
}

TEST(Shadow, ARefusedRequestIsNotCopied) {
  Shadowing shadowing(ShadowModel());
  EXPECT_EQ(shadowing.AskFor(BadInputs()).status.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(shadowing.Ask().status.ok());
  EXPECT_TRUE(WaitFor([&] { return shadowing.Compared() == 1; }));
  EXPECT_EQ(shadowing.Counted().shadow_sent, 1U);
  EXPECT_EQ(shadowing.Counted().shadow_failed, 0U);
}

TEST(Shadow, ARequestIsCopiedAfterItsAnswer) {
  Gate gate;
  Shadowing shadowing(ShadowModel(), {.share = 1, .time = 1}, gate.model());
  std::atomic<uint64_t> sent_at_answer = 1;
  auto [request, answer] = embershard::Ask(GoodInputs());
  request->may_run_inline = false;
  request->answer = [&, tell = std::move(request->answer)](Status status, Response response) {
    sent_at_answer = shadowing.Counted().shadow_sent;
    tell(std::move(status), std::move(response));
  };
  shadowing.Give(std::move(request));
  gate.WaitUntilRunning();
  EXPECT_EQ(shadowing.Counted().shadow_sent, 0U);
  gate.Open();
  EXPECT_TRUE(answer.get().status.ok());
  EXPECT_EQ(sent_at_answer, 0U);
  EXPECT_TRUE(WaitFor([&] { return shadowing.Compared() == 1; }));
}

TEST(Shadow, OneThatThrowsTouchesNoAnswer) {
  auto model = ShadowModel();
  model->before_run = [](const Slot&) -> Status { throw std::runtime_error("broken"); };
  Shadowing shadowing(std::move(model));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(shadowing.Ask().response.outputs[0].values, kGoodScores);
  EXPECT_TRUE(WaitFor([&] { return shadowing.Counted().shadow_failed == 20; }));
  EXPECT_EQ(shadowing.Compared(), 0U);
}

TEST(Shadow, OneThatGivesNanTouchesNoAnswer) {
  auto model = ShadowModel();
  model->after_run = [](Slot* slot) {
    for (float& value : slot->outputs[0]) value = std::numeric_limits<float>::quiet_NaN();
  };
  Shadowing shadowing(std::move(model));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(shadowing.Ask().response.outputs[0].values, kGoodScores);
  EXPECT_TRUE(WaitFor([&] { return shadowing.Counted().shadow_failed == 20; }));
}

// A shadow that stands still until `open` is.
std::unique_ptr<FakeModel> ModelBehind(std::latch* open) {
  auto model = ShadowModel();
  model->before_run = [open](const Slot&) {
    open->wait();
    return Status();
  };
  return model;
}

TEST(Shadow, OneThatStandsStillHoldsNoAnswerBackAndABoundedNumberOfRequests) {
  std::latch open(1);
  Shadowing shadowing(ModelBehind(&open));
  const size_t calls = 2 * Shadow::kUnderWayMax;
  for (size_t i = 0; i < calls; ++i) {
    const Answer answer = shadowing.Ask();
    ASSERT_TRUE(answer.status.ok()) << answer.status.message();
    ASSERT_EQ(answer.response.outputs[0].values, kGoodScores);
  }
  EXPECT_TRUE(shadowing.WaitForSampled(calls));
  EXPECT_EQ(shadowing.Counted().shadow_sent, Shadow::kUnderWayMax);
  EXPECT_EQ(shadowing.Dropped(ShadowDrop::kCopiesUnderWay), calls - Shadow::kUnderWayMax);
  open.count_down();
}

TEST(Shadow, OneThatStandsStillHoldsABoundedNumberOfBytes) {
  std::latch open(1);
  Shadowing shadowing(ModelBehind(&open));
  for (int i = 0; i < 3; ++i) {
    const auto half = Shadow::kUnderWayBytesMax / 2;
    EXPECT_TRUE(shadowing.Begin(Clock::time_point::max(), half).get().status.ok());
  }
  EXPECT_TRUE(shadowing.WaitForSampled(3));
  EXPECT_EQ(shadowing.Counted().shadow_sent, 2U);
  EXPECT_EQ(shadowing.Dropped(ShadowDrop::kBytesUnderWay), 1U);
  open.count_down();
  EXPECT_TRUE(WaitFor([&] { return shadowing.Compared() == 2; }));
  EXPECT_TRUE(WaitFor([&] {  // All counted bytes are released again.
    return shadowing.Begin(Clock::time_point::max(), Shadow::kUnderWayBytesMax).get().status.ok() &&
           shadowing.Counted().shadow_sent == 3;
  }));
}

// A shadow whose first batch stands still until it is let go, and what it runs.
class Standing {
 public:
  std::unique_ptr<FakeModel> model() {
    auto model = ShadowModel();
    model->before_run = [this](const Slot& slot) {
      if (Count(slot.requests) > 1) return Status();
      running_.count_down();
      open_.wait();
      return Status();
    };
    return model;
  }
  void WaitUntilRunning() { running_.wait(); }
  void Open() { open_.count_down(); }

  // How many requests each batch had.
  std::vector<size_t> Batches() {
    const std::lock_guard lock(mutex_);
    return batches_;
  }
  // Scheduling policy of the thread that ran each batch.
  std::vector<int> Policies() {
    const std::lock_guard lock(mutex_);
    return policies_;
  }

 private:
  size_t Count(size_t requests) {
    const std::lock_guard lock(mutex_);
    batches_.push_back(requests);
    policies_.push_back(sched_getscheduler(0));
    return batches_.size();
  }

  std::latch running_{1};
  std::latch open_{1};
  std::mutex mutex_;
  std::vector<size_t> batches_;  // Guarded by mutex_.
  std::vector<int> policies_;    // Guarded by mutex_.
};

TEST(Shadow, ItsCopiesRunAtIdlePriorityInSmallBatches) {
  Standing standing;
  Shadowing shadowing(standing.model());
  EXPECT_TRUE(shadowing.Ask().status.ok());
  standing.WaitUntilRunning();
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(shadowing.Ask().status.ok());
  EXPECT_TRUE(shadowing.WaitForSampled(21));
  standing.Open();
  EXPECT_TRUE(WaitFor([&] { return shadowing.Compared() == 21; }));
  const std::vector<size_t> batches = standing.Batches();
  EXPECT_EQ(batches.front(), 1U);
  EXPECT_EQ(std::ranges::max(batches), 8U);
  EXPECT_EQ(std::accumulate(batches.begin(), batches.end(), size_t{0}), 21U);
  EXPECT_EQ(standing.Policies(), std::vector<int>(batches.size(), SCHED_IDLE));
}

TEST(Shadow, OneThatAnswersOthersTooGetsItsCopiesInItsQueue) {
  Standing standing;
  standing.Open();
  Shadowing shadowing(standing.model());
  // Requests without a version now get 4, and those for version 3 still get 3.
  shadowing.Serve(kShadowed);
  EXPECT_TRUE(shadowing.Ask().status.ok());
  EXPECT_TRUE(WaitFor([&] { return shadowing.Compared() == 1; }));
  EXPECT_EQ(standing.Policies(), (std::vector<int>{sched_getscheduler(0)}));
}

TEST(Shadow, OneThatIsPromotedRunsNoMoreOfItsCopies) {
  Standing standing;
  Shadowing shadowing(standing.model());
  EXPECT_TRUE(shadowing.Ask().status.ok());
  standing.WaitUntilRunning();
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(shadowing.Ask().status.ok());
  EXPECT_TRUE(shadowing.WaitForSampled(21));
  shadowing.Serve(kShadowed);
  standing.Open();
  EXPECT_TRUE(WaitFor([&] { return shadowing.Counted().shadow_failed == 20; }));
  EXPECT_EQ(standing.Batches(), (std::vector<size_t>{1}));
}

TEST(Shadow, ACopyHasNoDeadline) {
  Standing standing;
  Shadowing shadowing(standing.model());
  EXPECT_TRUE(shadowing.Ask().status.ok());
  standing.WaitUntilRunning();
  Clock::time_point deadline;
  // On a slow machine the request itself may be too late, and is not copied.
  ASSERT_TRUE(WaitFor([&] {
    deadline = Clock::now() + std::chrono::milliseconds(20);
    return shadowing.Begin(deadline).get().status.ok();
  }));
  ASSERT_TRUE(WaitFor([deadline] { return Clock::now() > deadline; }));
  standing.Open();
  EXPECT_TRUE(WaitFor([&] { return standing.Batches().size() == 2; }));
}

TEST(Shadow, RestsBehindEachBatchSoLongThatItTakesNoMoreThanItsShareOfTheTime) {
  constexpr std::chrono::duration<double> kRuns(0.002);
  constexpr double kShare = 0.1;
  constexpr uint64_t kBatches = 5;
  auto model = ShadowModel();
  // Sleeps like a batch that waits for a processor; the wait counts.
  model->before_run = [kRuns](const Slot&) {
    std::this_thread::sleep_for(kRuns);
    return Status();
  };
  Shadowing shadowing(std::move(model), {.share = 1, .time = kShare});
  const Clock::time_point begin = Clock::now();
  for (uint64_t compared = 1; compared <= kBatches; ++compared) {
    EXPECT_TRUE(shadowing.Ask().status.ok());
    EXPECT_TRUE(WaitFor([&] { return shadowing.Compared() == compared; }));
  }
  const std::chrono::duration<double> took = Clock::now() - begin;
  EXPECT_GE(took, (kBatches - 1) * kRuns / kShare);
}

TEST(Shadow, ARequestThatIsAnsweredWhileTheServedModelsEndTouchesNoShadow) {
  Gate gate;
  std::jthread end;  // Joined last: it waits for the engines that the others hold.
  auto shadowing = std::make_unique<Shadowing>(ShadowModel(), ShadowOptions{.share = 1, .time = 1},
                                               gate.model());
  const std::shared_ptr<Engine> shadow = shadowing->shadow();
  auto [request, answer] = embershard::Ask(GoodInputs());
  request->may_run_inline = false;
  shadowing->Give(std::move(request));
  gate.WaitUntilRunning();
  end = std::jthread([ended = std::move(shadowing)]() mutable { ended.reset(); });
  gate.Open();
  EXPECT_TRUE(answer.get().status.ok());
  EXPECT_TRUE(WaitFor([&] {
    const TelemetrySnapshot counted = shadow->telemetry().Read();
    return counted.shadow_sent == 1 && counted.shadow_failed + Compared(counted) == 1;
  }));
}

TEST(Shadow, CountsHowLongItsBatchesTookAndHadAProcessor) {
  constexpr std::chrono::milliseconds kWaits(20);
  auto model = ShadowModel();
  model->before_run = [kWaits](const Slot&) {  // Sleeps like a batch that waits for a processor.
    std::this_thread::sleep_for(kWaits);
    return Status();
  };
  Shadowing shadowing(std::move(model));
  EXPECT_TRUE(shadowing.Ask().status.ok());
  EXPECT_TRUE(WaitFor([&] { return shadowing.Counted().shadow_batch_seconds > 0; }));
  EXPECT_GE(shadowing.Counted().shadow_batch_seconds, 0.02);
  EXPECT_LT(shadowing.Counted().shadow_cpu_seconds,
            shadowing.Counted().shadow_batch_seconds - 0.019);
}

TEST(Shadow, OneThatRestsHoldsNoCopiesOnceItIsNoShadow) {
  Shadowing shadowing(ShadowModel(), {.share = 1, .time = 1e-9});  // Rests for a minute.
  EXPECT_TRUE(shadowing.Ask().status.ok());
  EXPECT_TRUE(WaitFor([&] { return shadowing.Compared() == 1; }));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(shadowing.Ask().status.ok());
  EXPECT_TRUE(shadowing.WaitForSampled(4));
  EXPECT_EQ(shadowing.Counted().shadow_failed, 0U);
  shadowing.Serve(kShadowed);
  EXPECT_TRUE(WaitFor([&] { return shadowing.Counted().shadow_failed == 3; }));
  EXPECT_EQ(shadowing.Compared(), 1U);
}

TEST(Shadow, OneOfAnotherSchemaGetsNothing) {
  Manifest manifest = FakeManifest();
  manifest.version = kShadowed;
  manifest.schema.fingerprint ^= 1;
  Shadowing shadowing(std::make_unique<FakeModel>(std::move(manifest)));
  EXPECT_TRUE(shadowing.Ask().status.ok());
  EXPECT_EQ(shadowing.Dropped(ShadowDrop::kSchema), 1U);
  EXPECT_EQ(shadowing.Counted().shadow_sent, 0U);
}

TEST(Shadow, GetsItsShareOfTheRequests) {
  Shadowing none(ShadowModel(), {.share = 0});
  Shadowing some(ShadowModel(), {.share = 0.25, .time = 1});
  for (int i = 0; i < 400; ++i) {
    none.Ask();
    some.Ask();
  }
  EXPECT_EQ(none.Counted().shadow_sent, 0U);
  const uint64_t sampled = some.Counted().shadow_sent + some.Dropped();
  EXPECT_GT(sampled, 60U);  // 100 expected; five deviations are 43.
  EXPECT_LT(sampled, 145U);
}

}  // namespace
}  // namespace embershard
