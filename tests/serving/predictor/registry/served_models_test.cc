#include "registry/served_models.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "batching/fake_model.h"
#include "engine/asking.h"
#include "testing/wait_for.h"

namespace embershard {
namespace {

std::unique_ptr<FakeModel> Version(const std::string& model, int64_t version,
                                   uint64_t fingerprint_change = 0) {
  Manifest manifest = FakeManifest();
  manifest.model = model;
  manifest.version = version;
  manifest.schema.fingerprint ^= fingerprint_change;
  return std::make_unique<FakeModel>(std::move(manifest));
}

ServedModel Of(ServedModels* served, const std::string& model,
               const std::vector<int64_t>& versions) {
  ServedModel made = {.name = model, .versions = {}, .default_version = versions.back()};
  for (const int64_t version : versions) {
    made.versions.emplace(version, served->Own(StartWith(Version(model, version))));
  }
  return made;
}

// "ranker 2", or why nothing was found.
std::string Found(const ServedModels& served, const char* model, int64_t version,
                  const char* label) {
  const auto engine = served.Find(model, version, label);
  if (!engine.ok()) return engine.status().message();
  const Manifest& manifest = (*engine)->manifest();
  return manifest.model + " " + std::to_string(manifest.version);
}

TEST(ServedModels, OneModelIsTheDefaultAndIsFoundByNameAndVersion) {
  const auto served = ServedModels::Of(StartWith(std::make_unique<FakeModel>()));
  EXPECT_EQ(Found(*served, "", 0, ""), "fake 3");
  EXPECT_EQ(Found(*served, "fake", 3, ""), "fake 3");
  EXPECT_EQ(Found(*served, "other", 0, ""),
            "model 'other' is not served here, expected 'fake' version 3");
  EXPECT_EQ(Found(*served, "fake", 2, ""),
            "version 2 is not served here, expected 'fake' version 3");
  EXPECT_EQ(Found(*served, "", 0, "stable"),
            "label 'stable' is not defined here, expected none or 'fake' version 3");
  EXPECT_EQ(served->Find("other", 0, "").status().code(), StatusCode::kNotFound);
}

TEST(ServedModels, FindsVersionsByNumberAndLabel) {
  ServedModels served;
  ServedModel ranker = Of(&served, "ranker", {1, 2, 5});
  ranker.default_version = 2;
  ranker.labels = {{"canary", 5}, {"stable", 2}};
  served.Serve(std::move(ranker));
  EXPECT_EQ(Found(served, "", 0, ""), "ranker 2");
  EXPECT_EQ(Found(served, "ranker", 1, ""), "ranker 1");
  EXPECT_EQ(Found(served, "", 0, "canary"), "ranker 5");
  EXPECT_EQ(Found(served, "ranker", 0, "stable"), "ranker 2");
  EXPECT_EQ(Found(served, "", 0, "shadow"),
            "label 'shadow' is not defined here, expected none, 'canary', 'stable' or 'ranker' "
            "version 1, 2, 5");
  EXPECT_EQ(Found(served, "", 5, "canary"),
            "expected a version or a label, got version 5 and label 'canary'");
  EXPECT_EQ(served.Find("", 5, "canary").status().code(), StatusCode::kInvalidArgument);
}

// Which version of ranker answers each of 100 requests with a key.
std::map<int64_t, int> Routed(const ServedModels& served, int64_t version = 0,
                              const char* label = "") {
  std::map<int64_t, int> routed;
  for (int user = 0; user < 100; ++user) {
    const auto engine = served.Route("ranker", version, label, "user-" + std::to_string(user));
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    if (engine.ok()) ++routed[(*engine)->manifest().version];
  }
  return routed;
}

TEST(ServedModels, RoutesAShareOfTheRequestsForTheDefaultToALabel) {
  ServedModels served({}, {}, {.label = "canary", .share = 0.5});
  ServedModel ranker = Of(&served, "ranker", {1, 2, 5});
  ranker.default_version = 1;
  ranker.labels = {{"canary", 5}, {"stable", 1}};
  served.Serve(std::move(ranker));
  const std::map<int64_t, int> routed = Routed(served);
  EXPECT_EQ(routed.size(), 2U);
  EXPECT_NEAR(routed.at(5), 50, 25);
  EXPECT_EQ(routed, Routed(served));  // The key decides.
  EXPECT_EQ(Routed(served, 2), (std::map<int64_t, int>{{2, 100}}));
  EXPECT_EQ(Routed(served, 0, "stable"), (std::map<int64_t, int>{{1, 100}}));
  EXPECT_EQ(Found(served, "ranker", 0, ""), "ranker 1");  // Find() does not route.
}

TEST(ServedModels, RoutesAllRequestsToTheDefaultWithoutTheLabel) {
  ServedModels served({}, {}, {.label = "canary", .share = 1});
  ServedModel ranker = Of(&served, "ranker", {1, 2, 5});
  ranker.default_version = 2;
  ranker.labels = {{"shadow", 1}};
  served.Serve(ranker);
  EXPECT_EQ(Routed(served), (std::map<int64_t, int>{{2, 100}}));
  ranker.labels = {{"canary", 1}};
  served.Serve(ranker);
  EXPECT_EQ(Routed(served), (std::map<int64_t, int>{{1, 100}}));
  EXPECT_EQ(served.Route("other", 0, "", "").status().code(), StatusCode::kNotFound);
}

TEST(ServedModels, RoutesNoRequestToALabelWithAnotherSchema) {
  ServedModels served({}, {}, {.label = "canary", .share = 1});
  auto changed = Version("ranker", 5, /*fingerprint_change=*/1);
  ServedModel ranker = Of(&served, "ranker", {1});
  ranker.versions.emplace(5, served.Own(StartWith(std::move(changed))));
  ranker.labels = {{"canary", 5}};
  served.Serve(std::move(ranker));
  EXPECT_EQ(Routed(served), (std::map<int64_t, int>{{1, 100}}));
  EXPECT_EQ(Routed(served, 0, "canary"), (std::map<int64_t, int>{{5, 100}}));
}

TEST(ServedModels, OfSeveralModelsOneMustBeNamed) {
  ServedModels served;
  EXPECT_EQ(Found(served, "", 0, ""), "no model is served here now");
  served.Serve(Of(&served, "ranker", {1}));
  served.Serve(Of(&served, "finder", {7}));
  EXPECT_EQ(Found(served, "ranker", 0, ""), "ranker 1");
  EXPECT_EQ(Found(served, "finder", 0, ""), "finder 7");
  EXPECT_EQ(Found(served, "", 0, ""),
            "no model is named, expected one of 'finder' version 7; 'ranker' version 1");
  served.Withdraw("finder");
  EXPECT_EQ(Found(served, "", 0, ""), "ranker 1");
}

TEST(ServedModels, ListsModelsAndVersionsInOrder) {
  ServedModels served;
  ServedModel ranker = Of(&served, "ranker", {1, 2});
  ranker.labels = {{"canary", 2}, {"shadow", 2}};
  ranker.default_version = 1;
  served.Serve(std::move(ranker));
  served.Serve(Of(&served, "finder", {7}));
  const std::vector<ServedVersion> listed = served.List();
  ASSERT_EQ(listed.size(), 3U);
  EXPECT_EQ(listed[0].model, "finder");
  EXPECT_EQ(listed[0].version, 7);
  EXPECT_TRUE(listed[0].is_default);
  EXPECT_TRUE(listed[1].is_default);
  EXPECT_EQ(listed[2].version, 2);
  EXPECT_EQ(listed[2].labels, (std::vector<std::string>{"canary", "shadow"}));
  EXPECT_FALSE(listed[2].is_default);
}

TEST(ServedModels, AnEngineThatIsReplacedEndsBehindItsLastAnswer) {
  ServedModels served;
  std::atomic<bool> open = false;
  auto model = Version("fake", 1);
  model->before_run = [&open](const Slot&) {
    open.wait(false);
    return Status();
  };
  served.Serve({.name = "fake",
                .versions = {{1, served.Own(StartWith(std::move(model)))}},
                .default_version = 1});
  // The answer holds the last pointer, and releases it on a thread of the engine.
  std::shared_ptr<Engine> held = *served.Find("", 0, "");
  auto [request, answer] = Ask(GoodInputs());
  request->may_run_inline = false;
  request->answer = [engine = held, tell = std::move(request->answer)](Status status,
                                                                       Response response) {
    tell(std::move(status), std::move(response));
  };
  Engine* const asked = held.get();
  const std::weak_ptr<Engine> watched = held;
  held.reset();
  asked->Predict(std::move(request));
  served.Serve(Of(&served, "fake", {2}));
  EXPECT_EQ(Found(served, "", 0, ""), "fake 2");
  EXPECT_FALSE(watched.expired());
  open = true;
  open.notify_all();
  EXPECT_TRUE(answer.get().status.ok());
  EXPECT_TRUE(WaitFor([&watched] { return watched.expired(); }));
}

TEST(ServedModels, AnEngineGivesItsMemoryBackInTheBackground) {
  ServedModels served;
  std::atomic<int> policy = -1;  // Policy of the thread on which the model ends.
  auto model = Version("fake", 1);
  const auto tell = [&policy](void*) { policy = sched_getscheduler(0); };
  model->loads = [end = std::shared_ptr<void>(nullptr, tell)] { return std::vector<DeviceLoad>(); };
  served.Own(StartWith(std::move(model))).reset();
  ASSERT_TRUE(WaitFor([&policy] { return policy != -1; }));
  EXPECT_EQ(policy, SCHED_IDLE);
}

TEST(ServedModels, KnowsWhetherItsShadowIsNothingElse) {
  ServedModels served;
  EXPECT_EQ(served.FindShadow("ranker").engine, nullptr);
  ServedModel ranker = Of(&served, "ranker", {1, 2});
  ranker.default_version = 1;
  served.Serve(ranker);
  EXPECT_EQ(served.FindShadow("ranker").engine, nullptr);
  ranker.labels = {{"shadow", 2}, {"stable", 1}};
  served.Serve(ranker);
  EXPECT_EQ(served.FindShadow("ranker").engine->manifest().version, 2);
  EXPECT_TRUE(served.FindShadow("ranker").only_shadow);
  ranker.labels = {{"canary", 2}, {"shadow", 2}};
  served.Serve(ranker);
  EXPECT_FALSE(served.FindShadow("ranker").only_shadow);
  ranker.labels = {{"shadow", 2}};
  ranker.default_version = 2;
  served.Serve(ranker);
  EXPECT_EQ(served.FindShadow("ranker").engine->manifest().version, 2);
  EXPECT_FALSE(served.FindShadow("ranker").only_shadow);
}

TEST(ServedModels, WhatIsFoundWhileVersionsChangeIsWhole) {
  ServedModels served;
  served.Serve(Of(&served, "fake", {1}));
  std::atomic<bool> done = false;
  std::atomic<int> answered = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      while (!done) {
        const auto engine = served.Find("fake", 0, "");
        ASSERT_TRUE(engine.ok()) << engine.status().message();
        const Answer answer = Predict(engine->get(), GoodInputs()).get();
        ASSERT_TRUE(answer.status.ok()) << answer.status.message();
        ++answered;
      }
    });
  }
  for (int64_t version = 2; version < 100; ++version) {
    served.Serve(Of(&served, "fake", {version}));
    EXPECT_EQ(Found(served, "", 0, ""), "fake " + std::to_string(version));
  }
  EXPECT_TRUE(WaitFor([&answered] { return answered >= 100; }));
  done = true;
  for (std::thread& thread : threads) thread.join();
}

// Models ranker and other on a pool that replaces a worker after a second. Batches of one version
// of ranker do not end before the test does.
struct LoopingOptions {
  size_t slots = 2;
  int64_t looping = 2;
  std::vector<int64_t> versions = {1, 2};
  int64_t default_version = 1;
  int64_t canary = 2;
};

class Looping {
 public:
  explicit Looping(const LoopingOptions& options)
      : options_(options), served({}, {}, {.label = "canary", .share = 0.5}) {
    engine_options_.workers = std::make_shared<WorkerPool>(
        options.slots, WorkerPoolOptions{.stuck_after = std::chrono::seconds(1)});
    ServedModel ranker = {.name = "ranker",
                          .versions = {},
                          .default_version = options.default_version,
                          .labels = {{"canary", options.canary}}};
    for (const int64_t version : options.versions) {
      ranker.versions.emplace(version, Own("ranker", version));
    }
    served.Serve(std::move(ranker));
    served.Serve({.name = "other", .versions = {{1, Own("other", 1)}}, .default_version = 1});
    served.Watch([this](const std::string& model, bool is_served) { told[model] = is_served; });
    loops_ = true;
  }
  ~Looping() { open_ = true; }

  std::future<Answer> Send(const char* model, const char* label = "") {
    return Predict(served.Find(model, 0, label)->get(), GoodInputs());
  }
  // Sends a request to the looping version. It is answered when the version is withdrawn.
  void Withdraw() {
    const auto engine = served.Find("ranker", options_.looping, "");
    ASSERT_TRUE(engine.ok());
    EXPECT_EQ(Predict(engine->get(), GoodInputs()).get().status.code(), StatusCode::kUnavailable);
    EXPECT_TRUE(WaitFor([&] { return served.withdrawn()["ranker"].contains(options_.looping); }));
    served.Watch(nullptr);  // `told` is whole now.
  }

  std::map<std::string, bool> told;  // By the watcher.

 private:
  std::shared_ptr<Engine> Own(const std::string& model, int64_t version) {
    auto made = Version(model, version);
    made->num_slots = options_.slots;
    if (model == "ranker" && version == options_.looping) {
      made->before_run = [this](const Slot&) {
        EXPECT_TRUE(!loops_ || WaitFor([this] { return open_.load(); }));
        return Status();
      };
    }
    return served.Own(StartWith(std::move(made), engine_options_));
  }

  const LoopingOptions options_;
  EngineOptions engine_options_;
  std::atomic<bool> loops_ = false;
  std::atomic<bool> open_ = false;

 public:
  ServedModels served;
};

TEST(ServedModels, CallsTheWatcherWithoutALock) {
  ServedModels served;
  std::vector<std::pair<std::string, bool>> told;
  served.Watch([&](const std::string& model, bool is_served) {
    EXPECT_TRUE(served.withdrawn()[model].empty());  // Takes the lock of a change.
    told.emplace_back(model, is_served);
  });
  served.Serve(Of(&served, "ranker", {1}));
  served.Withdraw("ranker");
  EXPECT_EQ(told, (std::vector<std::pair<std::string, bool>>{{"ranker", true}, {"ranker", false}}));
}

TEST(ServedModels, ALoopingCanaryIsWithdrawnAndTheOthersRecover) {
  Looping two({.slots = 2});
  two.Withdraw();
  EXPECT_EQ(two.served.Find("ranker", 0, "canary").status().code(), StatusCode::kNotFound);
  ExpectGood(two.Send("other").get());
  ExpectGood(two.Send("ranker").get());
  EXPECT_FALSE(two.told.contains(""));  // One of two replacements is used: the server still serves.
}

TEST(ServedModels, WithdrawnDefaultVersionIsReplacedByThePreviousStableVersion) {
  Looping ranker({.looping = 5, .versions = {2, 3, 4, 5, 6}, .default_version = 5, .canary = 4});
  ranker.Withdraw();
  EXPECT_EQ(Found(ranker.served, "ranker", 0, ""), "ranker 3");  // 4 is the canary, 6 is later.
  EXPECT_EQ(Found(ranker.served, "ranker", 0, "canary"), "ranker 4");
  EXPECT_TRUE(ranker.told.at("ranker"));
}

TEST(ServedModels, WithdrawnDefaultVersionSendsNoRequestToTheCanary) {
  Looping ranker({.looping = 1});
  ranker.Withdraw();
  const auto engine = ranker.served.Find("ranker", 0, "");
  EXPECT_EQ(engine.status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(engine.status().message(),
            "model 'ranker': the default version 1 was withdrawn as failed, and no stable version "
            "is left");
  EXPECT_FALSE(ranker.told.at("ranker"));
  EXPECT_EQ(Found(ranker.served, "ranker", 0, "canary"), "ranker 2");
  int canary = 0;
  for (int user = 0; user < 100; ++user) {
    const auto routed = ranker.served.Route("ranker", 0, "", "user-" + std::to_string(user));
    EXPECT_TRUE(routed.ok() || routed.status().code() == StatusCode::kUnavailable);
    canary += routed.ok() ? 1 : 0;
  }
  EXPECT_NEAR(canary, 50, 25);  // The share is the configured one, and no more.
}

TEST(ServedModels, ALostDeviceFailsItsBatchAndTheHealthOfAll) {
  ServedModels served;
  std::atomic<bool> lost = false;
  auto model = std::make_unique<FakeModel>();
  model->before_run = [&lost](const Slot&) {
    return lost ? Status(StatusCode::kUnavailable, "lost", StatusReason::kDeviceLost) : Status();
  };
  auto engine = StartWith(std::move(model));
  const std::string name = engine->manifest().model;
  const int64_t version = engine->manifest().version;
  served.Serve({.name = name,
                .versions = {{version, served.Own(std::move(engine))}},
                .default_version = version});
  std::atomic<bool> told = false;
  served.Watch([&](const std::string& changed, bool is_served) {
    if (changed.empty() && !is_served) told = true;
  });
  EXPECT_FALSE(served.device_lost());
  lost = true;
  const auto current = served.Find(name, 0, "");
  const Answer answer = Predict(current->get(), GoodInputs()).get();
  EXPECT_EQ(answer.status.reason(), StatusReason::kDeviceLost);
  EXPECT_TRUE(WaitFor([&] { return served.device_lost() && told; }));
  EXPECT_TRUE(served.exhausted());
  served.Watch(nullptr);
}

TEST(ServedModels, NothingIsServedToHealthOnceAsManyWorkersAsSlotsWereReplaced) {
  Looping one({.slots = 1});
  EXPECT_FALSE(one.served.exhausted());
  one.Withdraw();
  EXPECT_TRUE(one.served.exhausted());
  EXPECT_TRUE(one.told.contains("") && !one.told.at(""));
  ExpectGood(one.Send("other").get());  // Versions that are served still answer.
}

}  // namespace
}  // namespace embershard
