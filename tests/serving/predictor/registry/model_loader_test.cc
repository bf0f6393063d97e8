#include "registry/model_loader.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/asking.h"
#include "registry/fake_source.h"
#include "registry/model_control.h"
#include "testing/wait_for.h"

namespace embershard {
namespace {

class ModelLoaderTest : public ::testing::Test {
 protected:
  void Start(ModelLoaderOptions options = {}) {
    options.report = [this](const LoadEvent& event) {
      events_.push_back(std::string(event.what) + " " + std::to_string(event.version));
      message_ = event.message;
    };
    loader_ = std::make_unique<ModelLoader>(&served_, shared_source_, std::move(options));
    const Status status = loader_->Start();
    ASSERT_TRUE(status.ok()) << status.message();
  }

  Status Load(const std::string& model, int64_t version = 0, Swap swap = Swap::kBeside) {
    return loader_->Load(model, version, swap, &unserved_seconds_);
  }

  // The version that answers, or 0 if none does.
  int64_t Found(const char* model, int64_t version = 0, const char* label = "") {
    const auto engine = served_.Find(model, version, label);
    return engine.ok() ? (*engine)->manifest().version : 0;
  }

  ServedModels served_;
  const std::shared_ptr<FakeSource> shared_source_ = std::make_shared<FakeSource>();
  FakeSource& source_ = *shared_source_;
  std::unique_ptr<ModelLoader> loader_;
  // Events since the last call.
  std::vector<std::string> Events() { return std::exchange(events_, {}); }

  std::vector<std::string> events_;
  std::string message_;  // Message of the last event.
  double unserved_seconds_ = 0;
};

TEST_F(ModelLoaderTest, ANewVersionTakesTheOldOnesPlace) {
  Start();
  EXPECT_EQ(Found("ranker"), 1);
  source_.there["ranker"] = {1, 2};
  ASSERT_TRUE(loader_->Refresh().ok());
  EXPECT_EQ(Found("ranker"), 2);
  EXPECT_EQ(Found("ranker", 1), 0);
  EXPECT_EQ(Events(), (std::vector<std::string>{"loaded 1", "serving 1", "loaded 2", "serving 2",
                                                "unloaded 1"}));
  ASSERT_TRUE(loader_->Refresh().ok());  // Nothing has changed.
  EXPECT_EQ(Events(), std::vector<std::string>());
  EXPECT_EQ(source_.loaded(), (std::vector<int64_t>{1, 2}));
}

TEST_F(ModelLoaderTest, OneThatFailsLeavesTheOldServing) {
  Start();
  source_.there["ranker"] = {1, 2};
  source_.broken = {2};
  const Status status = loader_->Refresh();
  EXPECT_EQ(status.code(), StatusCode::kBadPackage);
  EXPECT_EQ(status.message(),
            "model 'ranker' version 2: manifest.json: sha256: expected a, got b; model 'ranker' "
            "version 1 serves on");
  EXPECT_EQ(Found("ranker"), 1);
  const auto index = loader_->Index();
  ASSERT_EQ(index->size(), 2U);
  EXPECT_EQ((*index)[0].state, VersionState::kReady);
  EXPECT_EQ((*index)[1].state, VersionState::kFailed);
  EXPECT_EQ((*index)[1].reason, "manifest.json: sha256: expected a, got b");
  source_.broken.clear();
  ASSERT_TRUE(loader_->Refresh().ok());
  EXPECT_EQ(Found("ranker"), 2);
}

TEST_F(ModelLoaderTest, LoadsInTheBackgroundWhileAnotherVersionServes) {
  Start();
  source_.there["ranker"] = {1, 2};
  ASSERT_TRUE(loader_->Refresh().ok());
  source_.there["ranker"] = {1, 2, 3};
  ASSERT_TRUE(Load("ranker", 0, Swap::kReplace).ok());  // Nobody serves meanwhile.
  ASSERT_TRUE(Load("ranker", 1).ok());
  EXPECT_EQ(source_.loaded(), (std::vector<int64_t>{1, 2, 3, 1}));
  EXPECT_EQ(source_.in_background(), (std::vector<bool>{false, true, false, true}));
}

TEST_F(ModelLoaderTest, LabelsMoveAndStayWhereTheirNewVersionFails) {
  source_.there["ranker"] = {1, 2, 3};
  source_.labels["ranker"] = {{"stable", 1}, {"canary", 2}};
  Start();
  EXPECT_EQ(Found("ranker"), 1);
  EXPECT_EQ(Found("ranker", 0, "canary"), 2);
  EXPECT_EQ(Found("ranker", 3), 0);
  source_.labels["ranker"] = {{"stable", 2}, {"canary", 3}};
  source_.broken = {3};
  EXPECT_FALSE(loader_->Refresh().ok());
  EXPECT_EQ(Found("ranker"), 2);
  EXPECT_EQ(Found("ranker", 0, "canary"), 2);
  EXPECT_EQ(Found("ranker", 1), 0);
}

TEST_F(ModelLoaderTest, EveryMoveOfTheDefaultIsReportedAndWhatItLeavesBehind) {
  source_.there["ranker"] = {1, 2, 3};
  source_.labels["ranker"] = {{"stable", 1}, {"canary", 2}};
  Start();
  ASSERT_TRUE(Load("ranker", 3).ok());
  EXPECT_EQ(Events(), (std::vector<std::string>{"loaded 1", "loaded 2", "serving 1", "loaded 3"}));
  source_.labels["ranker"] = {{"stable", 3}, {"canary", 2}};  // All are loaded.
  ASSERT_TRUE(loader_->Refresh().ok());
  EXPECT_EQ(Events(), (std::vector<std::string>{"serving 3", "unloaded 1"}));
  source_.labels["ranker"] = {{"stable", 2}};
  ASSERT_TRUE(Load("ranker").ok());
  EXPECT_EQ(Events(), (std::vector<std::string>{"serving 2"}));  // Somebody asked for 3.
  source_.labels["ranker"] = {{"stable", 3}};
  ASSERT_TRUE(Load("ranker", 0, Swap::kReplace).ok());
  EXPECT_EQ(Events(), (std::vector<std::string>{"unloaded 2", "serving 3", "replaced 3"}));
  ASSERT_TRUE(loader_->Unload("ranker", 0).ok());
  EXPECT_EQ(Events(), (std::vector<std::string>{"unloaded 3"}));
  ASSERT_TRUE(Load("ranker").ok());
  EXPECT_EQ(Events(), (std::vector<std::string>{"loaded 3", "serving 3"}));
}

// A fetch publishes a version and then its label, while models before it in order are loaded.
TEST_F(ModelLoaderTest, StartsWithALabelledVersionThatIsPublishedWhileAnotherModelLoads) {
  source_.there = {{"finder", {1}}, {"ranker", {1}}};
  source_.before_load = [this](auto...) {
    source_.there["ranker"] = {1, 2};
    source_.labels["ranker"] = {{"stable", 2}};
  };
  Start();
  EXPECT_EQ(Found("finder"), 1);
  EXPECT_EQ(Found("ranker"), 2);
}

TEST_F(ModelLoaderTest, WithdrawnDefaultVersionLeavesTheCanaryUntilAnotherIsStable) {
  source_.there["ranker"] = {1, 2};
  source_.labels["ranker"] = {{"stable", 1}, {"canary", 2}};
  std::atomic<bool> loops = false;
  std::atomic<bool> open = false;
  source_.made = [&](FakeModel* model) {
    if (model->manifest().version != 1) return;
    model->before_run = [&](const Slot&) {
      EXPECT_TRUE(!loops || WaitFor([&] { return open.load(); }));
      return Status();
    };
  };
  ModelLoaderOptions options;
  options.engine.workers =
      std::make_shared<WorkerPool>(1, WorkerPoolOptions{.stuck_after = std::chrono::seconds(1)});
  Start(options);
  loops = true;
  const Answer answer = Predict(served_.Find("ranker", 0, "")->get(), GoodInputs()).get();
  EXPECT_EQ(answer.status.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(WaitFor([&] { return served_.withdrawn()["ranker"].contains(1); }));
  for (int look = 0; look < 2; ++look) {
    EXPECT_EQ(loader_->Refresh().code(), StatusCode::kUnavailable);
    EXPECT_EQ(served_.Find("ranker", 0, "").status().code(), StatusCode::kUnavailable);
    EXPECT_EQ(Found("ranker", 0, "canary"), 2);
  }
  source_.there["ranker"] = {1, 2, 3};
  source_.labels["ranker"] = {{"stable", 3}, {"canary", 2}};
  EXPECT_TRUE(loader_->Refresh().ok());
  EXPECT_EQ(Found("ranker"), 3);
  EXPECT_EQ(source_.loaded(), (std::vector<int64_t>{1, 2, 3}));  // 1 was not loaded again.
  open = true;
  EXPECT_TRUE(served_.WaitForEnds(2, Clock::now() + std::chrono::seconds(30)));
}

TEST_F(ModelLoaderTest, AModelIsUnloadedVersionByVersion) {
  source_.there["ranker"] = {1, 2};
  Start();
  ASSERT_TRUE(Load("ranker", 1).ok());
  Events();
  ASSERT_TRUE(loader_->Unload("ranker", 0).ok());
  EXPECT_EQ(Events(), (std::vector<std::string>{"unloaded 1", "unloaded 2"}));
}

TEST_F(ModelLoaderTest, WhatKeepsAnOrderFromLoadingIsReported) {
  Start();
  Events();
  source_.labels_are_broken = true;
  for (const Swap swap : {Swap::kBeside, Swap::kReplace}) {
    EXPECT_FALSE(Load("ranker", 0, swap).ok());
    EXPECT_EQ(Events(), (std::vector<std::string>{"load_failed 0"}));
    EXPECT_EQ(message_, "model 'ranker': labels.json: expected a number, got text");
  }
  EXPECT_FALSE(loader_->Refresh().ok());
  EXPECT_EQ(Events(), (std::vector<std::string>{"load_failed 0"}));
  source_.labels_are_broken = false;
  source_.is_gone = true;
  EXPECT_FALSE(Load("ranker").ok());
  EXPECT_FALSE(loader_->Refresh().ok());
  EXPECT_EQ(Events(), (std::vector<std::string>{"load_failed 0", "load_failed 0"}));
  EXPECT_EQ(message_, "repository: expected a folder, found none");
  EXPECT_EQ(Found("ranker"), 1);
}

TEST_F(ModelLoaderTest, NameThatOnlyTheRequestGaveIsNotReported) {
  Start();
  Events();
  EXPECT_EQ(Load("ranker", 9).message(), "model 'ranker' version 9 is not in the repository");
  EXPECT_EQ(Load("finder").message(), "model 'finder' is not in the repository");
  EXPECT_EQ(Load("finder", 1).message(), "model 'finder' is not in the repository");
  EXPECT_EQ(Events(), std::vector<std::string>());
  source_.there.clear();  // A model that is served reports the failure.
  EXPECT_EQ(Load("ranker").code(), StatusCode::kNotFound);
  EXPECT_EQ(Events(), (std::vector<std::string>{"load_failed 0", "differs_on_disk 1"}));
}

TEST_F(ModelLoaderTest, ModelFolderThatCannotBeReadIsReportedAndServesOn) {
  source_.there["finder"] = {7};
  Start();
  Events();
  source_.unreadable = {"finder"};
  source_.there["ranker"] = {1, 2};
  EXPECT_EQ(loader_->Refresh().message(), "model 'finder': cannot be read");
  EXPECT_EQ(Events(),
            (std::vector<std::string>{"load_failed 0", "loaded 2", "serving 2", "unloaded 1"}));
  EXPECT_EQ(Load("finder", 7).message(), "model 'finder': cannot be read");
  EXPECT_EQ(Events(), std::vector<std::string>{"load_failed 7"});
  EXPECT_EQ(Found("finder"), 7);
  ASSERT_EQ(loader_->Index()->size(), 3U);
}

TEST_F(ModelLoaderTest, OtherBytesUnderALoadedVersionAreReportedOnceAndTakenByReplace) {
  source_.digests = {{1, "aa"}};
  Start();
  Events();
  source_.digests = {{1, "bb"}};
  for (int scan = 0; scan < 2; ++scan) EXPECT_TRUE(loader_->Refresh().ok());
  EXPECT_TRUE(Load("ranker", 1).ok());
  EXPECT_EQ(Events(), std::vector<std::string>{"differs_on_disk 1"});
  EXPECT_EQ(message_, "differs on disk from what is served; load --replace takes it");
  EXPECT_EQ((*loader_->Index())[0].state, VersionState::kReady);
  EXPECT_EQ((*loader_->Index())[0].reason, message_);
  EXPECT_EQ(source_.loaded(), std::vector<int64_t>{1});
  EXPECT_TRUE(Load("ranker", 1, Swap::kReplace).ok());
  EXPECT_EQ(Events(), (std::vector<std::string>{"unloaded 1", "loaded 1", "replaced 1"}));
  EXPECT_EQ((*loader_->Index())[0].reason, "");
  EXPECT_EQ(source_.loaded(), (std::vector<int64_t>{1, 1}));
}

TEST_F(ModelLoaderTest, DeletedFolderOfALoadedVersionIsReportedOnce) {
  Start();
  Events();
  source_.there.clear();
  for (int scan = 0; scan < 2; ++scan) EXPECT_TRUE(loader_->Refresh().ok());
  EXPECT_EQ(Events(), std::vector<std::string>{"differs_on_disk 1"});
  EXPECT_EQ((*loader_->Index())[0].reason, "its folder is gone; the loaded version serves on");
  EXPECT_EQ(Found("ranker"), 1);
  source_.there["ranker"] = {1};  // It was restored.
  EXPECT_TRUE(loader_->Refresh().ok());
  EXPECT_EQ((*loader_->Index())[0].reason, "");
}

TEST_F(ModelLoaderTest, OtherBytesThatCannotBeLoadedLeaveNothingAndAreTriedOnce) {
  source_.digests = {{1, "aa"}};
  Start();
  source_.digests = {{1, "bb"}};
  source_.broken = {1};
  Events();
  EXPECT_EQ(Load("ranker", 1, Swap::kReplace).code(), StatusCode::kBadPackage);
  EXPECT_EQ(Events(), (std::vector<std::string>{"differs_on_disk 1", "unloaded 1", "load_failed 1",
                                                "replaced 1"}));
  EXPECT_EQ(Found("ranker"), 0);
}

TEST_F(ModelLoaderTest, ReplaceThatWouldUnloadNothingIsRefused) {
  ModelLoaderOptions options;
  options.rule = {.number = 1, .label = ""};
  Start(options);
  Events();
  source_.there["ranker"] = {1, 2};
  const Status status = Load("ranker", 2, Swap::kReplace);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "model 'ranker' version 2: replace: expected a version to unload for it, got version "
            "1, which is pinned by --version and is not unloaded; load it without replace to serve "
            "it beside");
  EXPECT_EQ(Found("ranker", 2), 0);
  EXPECT_TRUE(Load("ranker", 0, Swap::kReplace).ok());  // Nothing is to be done.
  EXPECT_EQ(Events(), std::vector<std::string>());
  EXPECT_EQ(unserved_seconds_, 0);
  EXPECT_TRUE(Load("ranker", 2).ok());
  EXPECT_EQ(Events(), std::vector<std::string>{"loaded 2"});
}

TEST_F(ModelLoaderTest, ReplaceUnloadsNoDefault) {
  source_.labels["ranker"] = {{"stable", 1}};
  Start();
  source_.there["ranker"] = {1, 2};
  const std::string message = Load("ranker", 2, Swap::kReplace).message();
  EXPECT_NE(message.find("got version 1, which is the default"), std::string::npos) << message;
}

TEST_F(ModelLoaderTest, AVersionThatDoesNotFitIsRefusedAndSharedPartsCountOnce) {
  source_.memory = {{1, {{"table", 100}, {"program 1", 10}}},
                    {2, {{"table", 100}, {"program 2", 10}}},
                    {3, {{"other table", 100}, {"program 3", 10}}}};
  ModelLoaderOptions options;
  options.memory_budget = 125;
  Start(options);
  source_.there["ranker"] = {1, 2};
  ASSERT_TRUE(loader_->Refresh().ok());
  EXPECT_EQ(Found("ranker"), 2);
  ASSERT_TRUE(served_.WaitForEnds(1, Clock::now() + std::chrono::seconds(60)));
  source_.there["ranker"] = {1, 2, 3};
  const Status status = loader_->Refresh();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(status.message().starts_with(
      "model 'ranker' version 3: memory: expected at most 125 bytes (the memory budget), got 110 "
      "that are taken and 110 more"))
      << status.message();
  EXPECT_EQ(Found("ranker"), 2);
  ASSERT_TRUE(Load("ranker", 0, Swap::kReplace).ok());  // The old version is unloaded first.
  EXPECT_EQ(Found("ranker"), 3);
  EXPECT_GT(unserved_seconds_, 0);
}

TEST_F(ModelLoaderTest, NewDefaultServesIfAFailedLabelKeepsTheOldDefault) {
  source_.there["ranker"] = {1, 2, 3};
  source_.labels["ranker"] = {{"stable", 1}, {"canary", 1}};
  Start();
  source_.labels["ranker"] = {{"stable", 2}, {"canary", 3}};
  source_.broken = {3};
  EXPECT_FALSE(loader_->Refresh().ok());
  EXPECT_EQ(Found("ranker"), 2);
  EXPECT_EQ(Found("ranker", 0, "canary"), 1);
}

TEST_F(ModelLoaderTest, MemoryBudgetCountsVersionsThatStillDrain) {
  source_.memory = {{1, {{"table 1", 100}}}, {2, {{"table 2", 10}}}, {3, {{"table 3", 100}}}};
  ModelLoaderOptions options;
  options.memory_budget = 125;
  options.drain_wait = std::chrono::milliseconds(10);
  Start(options);
  std::shared_ptr<Engine> draining = *served_.Find("ranker", 1, "");  // Held as by a request.
  source_.there["ranker"] = {1, 2};
  ASSERT_TRUE(loader_->Refresh().ok());
  source_.there["ranker"] = {1, 2, 3};
  const Status status = loader_->Refresh();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(Found("ranker"), 2);
  draining.reset();
  EXPECT_TRUE(WaitFor([this] { return loader_->Refresh().ok(); }));
  EXPECT_EQ(Found("ranker"), 3);
}

TEST_F(ModelLoaderTest, LoadThatThrowsIsFailedAndReported) {
  Start();
  Events();
  source_.there["ranker"] = {1, 2};
  source_.before_load = [](auto...) { throw std::runtime_error("no such operator"); };
  const Status status = loader_->Refresh();
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_EQ(Events(), (std::vector<std::string>{"load_failed 2"}));
  EXPECT_EQ((*loader_->Index())[1].state, VersionState::kFailed);
  EXPECT_EQ((*loader_->Index())[1].reason, "no such operator");
  EXPECT_EQ(Found("ranker"), 1);
}

TEST_F(ModelLoaderTest, AReplacementThatFailsRestoresTheOld) {
  Start();
  source_.there["ranker"] = {1, 2};
  source_.broken = {2};
  source_.before_load = [this](auto...) { EXPECT_EQ(Found("ranker"), 0); };
  EXPECT_FALSE(Load("ranker", 0, Swap::kReplace).ok());
  EXPECT_EQ(Found("ranker"), 1);
  EXPECT_EQ(source_.loaded(), (std::vector<int64_t>{1, 2, 1}));
}

TEST_F(ModelLoaderTest, AVersionAskedForServesBesideUntilItIsLetGo) {
  source_.there["ranker"] = {1, 2};
  Start();
  ASSERT_TRUE(Load("ranker", 1).ok());
  EXPECT_EQ(Found("ranker"), 2);
  EXPECT_EQ(Found("ranker", 1), 1);
  ASSERT_TRUE(loader_->Refresh().ok());
  EXPECT_EQ(Found("ranker", 1), 1);
  EXPECT_EQ(loader_->Unload("ranker", 2).message(),
            "model 'ranker' version 2 is the default: give that to another version first, or "
            "unload the model");
  ASSERT_TRUE(loader_->Unload("ranker", 1).ok());
  EXPECT_EQ(Found("ranker", 1), 0);
  EXPECT_EQ(loader_->Unload("ranker", 1).code(), StatusCode::kNotFound);
  EXPECT_EQ(Load("ranker", 9).message(), "model 'ranker' version 9 is not in the repository");
  EXPECT_EQ(Load("finder").message(), "model 'finder' is not in the repository");
}

TEST_F(ModelLoaderTest, AModelThatWasUnloadedComesBackWhenItIsAskedFor) {
  source_.there["finder"] = {7};
  Start();
  EXPECT_EQ(Found("finder"), 7);
  ASSERT_TRUE(loader_->Unload("finder", 0).ok());
  ASSERT_TRUE(loader_->Refresh().ok());
  EXPECT_EQ(Found("finder"), 0);
  EXPECT_EQ(Found(""), 1);  // The only model now.
  ASSERT_TRUE(Load("finder").ok());
  EXPECT_EQ(Found("finder"), 7);
}

TEST_F(ModelLoaderTest, OnlyTheModelsThatWereNamedAreServed) {
  source_.there["finder"] = {7};
  ModelLoaderOptions options;
  options.models = {"finder"};
  Start(options);
  ASSERT_TRUE(loader_->Refresh().ok());
  EXPECT_EQ(Found("ranker"), 0);
  EXPECT_EQ(Found("finder"), 7);
}

TEST(ModelControl, OrdersAreCarriedOutInTurnAndRefusedOnceItHasStopped) {
  ServedModels served;
  auto source = std::make_unique<FakeSource>();
  FakeSource* const there = source.get();
  ModelControl control(&served, std::move(source), {});
  ASSERT_TRUE(control.Start().ok());
  there->there["ranker"] = {1, 2, 3};
  std::vector<std::promise<Status>> done(3);
  control.Load("ranker", 1, Swap::kBeside, [&](const auto& of) { done[0].set_value(of.status); });
  control.Unload("ranker", 1, [&](const auto& of) { done[1].set_value(of.status); });
  control.Load("ranker", 4, Swap::kBeside, [&](const auto& of) { done[2].set_value(of.status); });
  EXPECT_TRUE(done[0].get_future().get().ok());
  EXPECT_TRUE(done[1].get_future().get().ok());
  EXPECT_EQ(done[2].get_future().get().code(), StatusCode::kNotFound);
  control.Stop();
  Status refused;
  control.Refresh([&refused](const LoadOutcome& outcome) { refused = outcome.status; });
  EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
}

TEST(ModelControl, AnOrderThatNobodyWaitsForAnyMoreIsNotCarriedOut) {
  ServedModels served;
  auto source = std::make_unique<FakeSource>();
  FakeSource* const there = source.get();
  ModelControl control(&served, std::move(source), {});
  ASSERT_TRUE(control.Start().ok());
  there->there["ranker"] = {1, 2};
  std::promise<Status> first;
  std::promise<Status> second;
  const auto left = [] { return true; };
  control.Load(
      "ranker", 0, Swap::kBeside, [&](const auto& of) { first.set_value(of.status); }, left);
  control.Unload("ranker", 0, [&](const auto& of) { second.set_value(of.status); }, left);
  for (std::promise<Status>* const refused : {&first, &second}) {
    const Status status = refused->get_future().get();
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
    EXPECT_EQ(status.reason(), StatusReason::kAbandoned);
  }
  EXPECT_EQ(there->loaded(), (std::vector<int64_t>{1}));
  EXPECT_TRUE(served.Find("ranker", 1, "").ok());
}

}  // namespace
}  // namespace embershard
