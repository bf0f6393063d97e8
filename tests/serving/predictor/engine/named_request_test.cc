#include "engine/named_request.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "batching/request_validation.h"
#include "engine/asking.h"

namespace embershard {
namespace {

constexpr std::chrono::seconds kLong(60);

// GoodInputs() by name, in another order. Inputs left out there are left out here.
NamedInputs Named() {
  return {.num_examples = 2,
          .dense = {{"price", {1.5F, 2.5F}}, {"age", {30.0F}}},
          .sparse = {{"genre", {{4, 1000}, {}}, {{0.5F, 2.0F}, {}}},
                     {"user", {{7}}},
                     {"item", {{101}, {205}}},
                     {"history", {{3, 9}}}}};
}

std::unique_ptr<Engine> Started() { return StartWith(std::make_unique<FakeModel>()); }

Status Refused(const NamedInputs& inputs) {
  return PredictNamed(Started().get(), inputs, kLong).status();
}

TEST(PredictNamed, GivesTheOutputsByName) {
  const auto outputs = PredictNamed(Started().get(), Named(), kLong);
  ASSERT_TRUE(outputs.ok()) << outputs.status().message();
  EXPECT_EQ(*outputs, (NamedOutputs{{"score", kGoodScores}, {"profile", kGoodProfile}}));
}

TEST(PredictNamed, GivesOnlyTheOutputsWanted) {
  NamedInputs inputs = Named();
  inputs.outputs = {"profile"};
  const auto outputs = PredictNamed(Started().get(), inputs, kLong);
  ASSERT_TRUE(outputs.ok()) << outputs.status().message();
  EXPECT_EQ(*outputs, (NamedOutputs{{"profile", kGoodProfile}}));
}

TEST(PredictNamed, TakesTheLongestTimeoutThereIs) {
  EXPECT_TRUE(PredictNamed(Started().get(), Named(), Clock::duration::max()).ok());
}

TEST(PredictNamed, IsRefusedIfItsDeadlineHasPassed) {
  const Status status = PredictNamed(Started().get(), Named(), Clock::duration::zero()).status();
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status.message();
}

TEST(PredictNamed, IsRefusedByAnEngineThatHasStopped) {
  const auto engine = Started();
  engine->Stop();
  const Status status = PredictNamed(engine.get(), Named(), kLong).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.message();
}

TEST(PredictNamed, ReturnsTheErrorOfValidation) {
  NamedInputs inputs = Named();
  inputs.sparse[2].lists[1][0] = -5;
  const Status status = Refused(inputs);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "feature 'item': id -5 at example 1, position 0 is not in 0..1999 (policy: reject)");
}

TEST(PredictNamed, RefusesANameThatIsNotThere) {
  NamedInputs inputs = Named();
  inputs.dense[0].name = "prize";
  EXPECT_EQ(Refused(inputs).code(), StatusCode::kInvalidArgument);
  EXPECT_NE(Refused(inputs).message().find("prize"), std::string::npos)
      << Refused(inputs).message();
  inputs = Named();
  inputs.sparse[1].name = "users";
  EXPECT_NE(Refused(inputs).message().find("users"), std::string::npos)
      << Refused(inputs).message();
  inputs = Named();
  inputs.outputs = {"score", "scores"};
  EXPECT_EQ(Refused(inputs).code(), StatusCode::kNotFound);
}

TEST(PredictNamed, RefusesAnInputThatIsGivenTwice) {
  NamedInputs inputs = Named();
  inputs.dense.push_back({"age", {31.0F}});
  EXPECT_EQ(Refused(inputs).message(), GivenTwice("age").message());
  inputs = Named();
  inputs.sparse.push_back({"user", {{8}}});
  EXPECT_EQ(Refused(inputs).message(), GivenTwice("user").message());
}

TEST(PredictNamed, RefusesWeightsThatDoNotGoWithTheIds) {
  NamedInputs inputs = Named();
  inputs.sparse[0].weights.pop_back();
  EXPECT_EQ(Refused(inputs).message(),
            "feature 'genre': expected weights for 2 lists, got them for 1");
  inputs = Named();
  inputs.sparse[0].weights = {{0.5F}, {2.0F}};  // The same number in total.
  EXPECT_EQ(Refused(inputs).message(),
            "feature 'genre': list 0: expected 2 weights, one for each id, got 1");
}

TEST(PredictNamed, WaitsNoLongerThanItsTimeoutForAnEngineThatDoesNotAnswer) {
  Gate gate;
  EngineOptions options;
  options.now = [start = Clock::now()] { return start; };  // By this clock no deadline ever passes.
  const auto engine = StartWith(gate.model(), options);
  auto [first, answer] = Ask(GoodInputs());
  first->may_run_inline = false;
  engine->Predict(std::move(first));
  gate.WaitUntilRunning();
  const Status status = PredictNamed(engine.get(), Named(), std::chrono::milliseconds(20)).status();
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(status.message(), "the deadline passed, and the engine has not answered");
  gate.Open();
  ExpectGood(answer.get());
}

// Runs `work` in a forked child for at most 20 seconds, and returns its result.
template <class Work>
int InChild(const Work& work) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    _exit(work());
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(PredictNamed, IsRefusedInAChildThatHasNoneOfTheEnginesThreads) {
  const auto engine = Started();
  ASSERT_TRUE(PredictNamed(engine.get(), Named(), kLong).ok());
  const int code = InChild([&engine] {
    return static_cast<int>(PredictNamed(engine.get(), Named(), kLong).status().code());
  });
  EXPECT_EQ(code, static_cast<int>(StatusCode::kUnavailable));
  EXPECT_TRUE(PredictNamed(engine.get(), Named(), kLong).ok());
}

TEST(Engine, EndsInAChildThatHasNoneOfItsThreads) {
  auto engine = Started();
  ASSERT_TRUE(PredictNamed(engine.get(), Named(), kLong).ok());
  EXPECT_EQ(InChild([&engine] {
              engine.reset();
              return 7;
            }),
            7);
}

TEST(MakeRequest, IsRefusedByAnEngineOfAnotherSchema) {
  Manifest manifest = FakeManifest();
  manifest.schema.dense[1].name = "cost";
  manifest.schema.fingerprint = 1;
  const auto other = StartWith(std::make_unique<FakeModel>(manifest));
  auto request = MakeRequest(*Started(), Named());
  ASSERT_TRUE(request.ok()) << request.status().message();
  Status refused;
  (*request)->answer = [&refused](const Status& status, const Response&) { refused = status; };
  other->Predict(std::move(*request));
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(refused.message(),
            "request: expected schema 0000000000000001, got 9f86d081884c7d65: it was made for "
            "another engine");
}

TEST(MakeRequest, ArrivesBeforeItsInputsAreCopied) {
  const auto engine = Started();
  NamedInputs inputs = Named();
  inputs.sparse[2].lists.assign(1 << 18, std::vector<int64_t>(4, 101));
  bool arrived_first = false;
  for (int i = 0; i < 5 && !arrived_first; ++i) {  // Another process may have the core meanwhile.
    const Clock::time_point before = Clock::now();
    const auto request = MakeRequest(*engine, inputs);
    const Clock::time_point after = Clock::now();
    ASSERT_TRUE(request.ok()) << request.status().message();
    arrived_first = (*request)->arrival - before < after - (*request)->arrival;
  }
  EXPECT_TRUE(arrived_first);
}

TEST(MakeRequest, KeepsWhatItIsMadeOf) {
  const auto engine = Started();
  auto inputs = std::make_unique<NamedInputs>(Named());
  auto request = MakeRequest(*engine, *inputs);
  inputs.reset();
  ASSERT_TRUE(request.ok()) << request.status().message();
  EXPECT_GT((*request)->held_bytes, 0U);
  const auto promise = std::make_shared<std::promise<Answer>>();
  (*request)->answer = [promise](Status status, Response response) {
    promise->set_value({std::move(status), std::move(response)});
  };
  engine->Predict(std::move(*request));
  ExpectGood(promise->get_future().get());
}

}  // namespace
}  // namespace embershard
