// Loads that make no progress are given up; whatever they do later, nobody waits for them.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "registry/fake_source.h"
#include "registry/model_control.h"
#include "registry/model_loader.h"
#include "testing/wait_for.h"

namespace embershard {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr char kGivenUp[] =
    "loading: expected progress (bytes read, samples run) within 1 s (--load-timeout-seconds), got "
    "none; its thread is left behind until it ends";

// A second passes at each look at the clock while a load hangs, and none otherwise.
class LoadTimeoutTest : public ::testing::Test {
 protected:
  LoadTimeoutTest() {
    source_->before_load = [this](int64_t version, const LoadContext&) {
      if (endless_.contains(version)) Hang();
    };
    options_.load.timeout = seconds(1);
    options_.load.now = [this] {
      ++looks_;
      if (hangs_) now_ms_ += 1000;
      return Clock::time_point(milliseconds(now_ms_));
    };
    options_.report = [this](const LoadEvent& event) {
      hangs_ = false;
      events_.push_back(std::string(event.what) + " " + std::to_string(event.version));
    };
  }
  ~LoadTimeoutTest() override { EndHung(); }

  Status Start() {
    loader_ = std::make_unique<ModelLoader>(&served_, source_, options_);
    return loader_->Start();
  }

  // Until EndHung().
  void Hang() {
    hangs_ = true;
    ended_.wait();
  }
  void EndHung() {
    if (!has_ended_.exchange(true)) end_.set_value();
    EXPECT_TRUE(WaitFor([this] { return loader_ == nullptr || loader_->hung_loads() == 0; }));
  }

  Status Publish(std::vector<int64_t> versions) {
    source_->there["ranker"] = std::move(versions);
    return loader_->Refresh();
  }

  // The version that answers, or 0 if none does.
  int64_t Found(int64_t version = 0, const char* label = "") {
    const auto engine = served_.Find("ranker", version, label);
    return engine.ok() ? (*engine)->manifest().version : 0;
  }

  ServedModels served_;
  const std::shared_ptr<FakeSource> source_ = std::make_shared<FakeSource>();
  ModelLoaderOptions options_;
  std::set<int64_t> endless_;
  std::vector<std::string> events_;
  std::atomic<bool> hangs_ = false;
  std::atomic<int> looks_ = 0;
  std::atomic<int64_t> now_ms_ = 0;
  std::atomic<bool> has_ended_ = false;
  std::promise<void> end_;
  const std::shared_future<void> ended_ = end_.get_future().share();
  std::unique_ptr<ModelLoader> loader_;
};

TEST_F(LoadTimeoutTest, EndlessLoadIsGivenUpAndTheNextVersionLoads) {
  ASSERT_TRUE(Start().ok());
  endless_ = {2};
  const Status status = Publish({1, 2});
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(status.message(), std::string("model 'ranker' version 2: ") + kGivenUp +
                                  "; model 'ranker' version 1 serves on");
  EXPECT_EQ(events_, (std::vector<std::string>{"loaded 1", "serving 1", "load_failed 2"}));
  EXPECT_EQ((*loader_->Index())[1].state, VersionState::kFailed);
  EXPECT_EQ((*loader_->Index())[1].reason, kGivenUp);
  EXPECT_EQ(Found(), 1);
  EXPECT_EQ(loader_->hung_loads(), 1U);
  EXPECT_TRUE(Publish({1, 2, 3}).ok());
  EXPECT_EQ(Found(), 3);
}

TEST_F(LoadTimeoutTest, LoadThatMakesProgressIsNotGivenUp) {
  source_->before_load = [this](int64_t, const LoadContext& context) {
    for (int step = 0; step < 3; ++step) {
      EXPECT_TRUE(context.control->Advance().ok());
      now_ms_ += 900;
      const int before = looks_;
      EXPECT_TRUE(WaitFor([this, before] { return looks_ >= before + 2; }));
    }
  };
  EXPECT_TRUE(Start().ok());
  EXPECT_EQ(now_ms_, 2700);
}

TEST_F(LoadTimeoutTest, LoadIsRefusedWhileTwoHang) {
  ASSERT_TRUE(Start().ok());
  endless_ = {2, 3};
  EXPECT_EQ(Publish({1, 2}).code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Publish({1, 2, 3}).code(), StatusCode::kDeadlineExceeded);
  const Status refused = Publish({1, 2, 3, 4});
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.message(),
            "model 'ranker' version 4: loading: expected fewer than 2 loads that were given up and "
            "still hang, got 2 (model 'ranker' version 2, model 'ranker' version 3); restart the "
            "server to load more; model 'ranker' version 1 serves on");
  EXPECT_EQ(loader_->hung_loads(), 2U);
  EndHung();
  EXPECT_TRUE(Publish({1, 2, 3, 4}).ok());
  EXPECT_EQ(Found(), 4);
}

TEST_F(LoadTimeoutTest, VersionIsNotLoadedAgainWhileItsEarlierLoadHangs) {
  ASSERT_TRUE(Start().ok());
  endless_ = {2};
  EXPECT_EQ(Publish({1, 2}).code(), StatusCode::kDeadlineExceeded);
  const Status again = loader_->Refresh();
  EXPECT_EQ(again.code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(again.message().starts_with(
      "model 'ranker' version 2: loading: expected an earlier load of it, which was given up, to "
      "end first; it hangs"))
      << again.message();
  EXPECT_EQ(loader_->hung_loads(), 1U);
}

TEST_F(LoadTimeoutTest, ResultOfAGivenUpLoadIsDestroyedAndNeverServed) {
  ASSERT_TRUE(Start().ok());
  auto memory = std::make_shared<int>();
  const std::weak_ptr<int> watched = memory;
  source_->made = [memory = std::move(memory)](FakeModel* model) mutable {
    model->after_run = [memory = std::move(memory)](Slot*) {};
  };
  endless_ = {2};
  EXPECT_EQ(Publish({1, 2}).code(), StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(watched.expired());
  EndHung();
  EXPECT_EQ(source_->loaded(), (std::vector<int64_t>{1, 2}));
  EXPECT_TRUE(watched.expired());
  EXPECT_EQ(Found(2), 0);
  EXPECT_EQ(Found(), 1);
}

TEST_F(LoadTimeoutTest, MemoryOfGivenUpLoadsCountsUntilTheyEnd) {
  source_->memory = {{2, {{"table 2", 100}}}, {3, {{"table 3", 100}}}};
  options_.memory_budget = 150;
  ASSERT_TRUE(Start().ok());
  endless_ = {2};
  EXPECT_EQ(Publish({1, 2}).code(), StatusCode::kDeadlineExceeded);
  const Status refused = Publish({1, 2, 3});
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.message(),
            "model 'ranker' version 3: memory: expected at most 150 bytes (the memory budget), got "
            "100 that are taken (100 by loads that were given up and have not ended) and 100 more; "
            "model 'ranker' version 1 serves on");
  EndHung();
  EXPECT_TRUE(Publish({1, 2, 3}).ok());
}

TEST_F(LoadTimeoutTest, ServerDoesNotStartWithAnEndlessDefaultVersion) {
  endless_ = {1};
  const Status status = Start();
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(status.message(), std::string("model 'ranker' version 1: ") + kGivenUp);
}

TEST_F(LoadTimeoutTest, ServerStartsWithoutAnEndlessLabelledVersion) {
  source_->there["ranker"] = {1, 2};
  source_->labels["ranker"] = {{"stable", 1}, {"canary", 2}};
  endless_ = {2};
  EXPECT_TRUE(Start().ok());
  EXPECT_EQ(Found(), 1);
  EXPECT_EQ(Found(0, "canary"), 0);
  EXPECT_EQ((*loader_->Index())[1].state, VersionState::kFailed);
}

TEST_F(LoadTimeoutTest, RepositoryThatDoesNotAnswerFailsTheOrderAndUnloadStillWorks) {
  source_->there["ranker"] = {1, 2};
  ASSERT_TRUE(Start().ok());
  ASSERT_TRUE(loader_->Load("ranker", 1, Swap::kBeside, nullptr).ok());
  source_->before_list = [this] { Hang(); };
  const Status status = loader_->Refresh();
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(events_.back(), "load_failed 0");
  EXPECT_EQ(loader_->Refresh().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(loader_->Unload("ranker", 1).ok());
  EXPECT_EQ(Found(1), 0);
}

TEST_F(LoadTimeoutTest, StopReturnsWhileALoadHangs) {
  std::promise<void> begun;
  auto source = std::make_unique<FakeSource>();
  FakeSource* const there = source.get();
  // Without a timeout: it is never given up by itself.
  ModelControl control(&served_, std::move(source), ModelLoaderOptions());
  ASSERT_TRUE(control.Start().ok());
  there->there["ranker"] = {1, 2};
  there->before_load = [&begun, ended = ended_](int64_t, const LoadContext&) {
    begun.set_value();
    ended.wait();
  };
  std::promise<Status> loaded;
  control.Load("ranker", 0, Swap::kBeside, [&](const auto& of) { loaded.set_value(of.status); });
  begun.get_future().get();
  control.Stop();
  EXPECT_EQ(loaded.get_future().get().code(), StatusCode::kUnavailable);
  EXPECT_EQ(control.hung_loads(), 1U);
  end_.set_value();
  has_ended_ = true;
  EXPECT_TRUE(WaitFor([&] { return control.hung_loads() == 0; }));
  EXPECT_EQ(Found(), 1);
}

}  // namespace
}  // namespace embershard
