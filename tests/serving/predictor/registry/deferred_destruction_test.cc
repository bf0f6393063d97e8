// Engines that end: each for itself.

#include "registry/deferred_destruction.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "engine/asking.h"
#include "engine/stepped.h"

namespace embershard {
namespace {

TEST(DeferredDestruction, AnEngineWhoseBatchNeverEndsHoldsUpNoOther) {
  SteppedModel stuck;
  Background background;
  DeferredDestruction destruction(&background);
  std::shared_ptr<Engine> first = destruction.Own(StartWith(stuck.model()));
  std::shared_ptr<Engine> second = destruction.Own(StartWith(std::make_unique<FakeModel>()));
  std::future<Answer> answer = Predict(first.get(), GoodInputs());
  stuck.WaitUntilRunning();
  Engine* const ending = first.get();
  first.reset();
  // Sends requests until the engine is being stopped: then they are refused at once.
  std::vector<std::future<Answer>> others;
  do {
    others.push_back(Predict(ending, GoodInputs()));
  } while (others.back().wait_for(std::chrono::seconds(0)) != std::future_status::ready);
  second.reset();
  EXPECT_TRUE(destruction.WaitForEnds(1, Clock::now() + std::chrono::seconds(60)));
  stuck.LetAllGo();
  EXPECT_TRUE(answer.get().status.ok());
}

}  // namespace
}  // namespace embershard
