// An engine over the fake model, and requests for it whose answers can be waited for.

#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <future>
#include <latch>
#include <memory>
#include <utility>

#include "batching/fake_model.h"
#include "batching/large_inputs.h"
#include "engine/engine.h"

namespace embershard {

struct Answer {
  Status status;
  Response response;
};

// Checks the answer to LargeInputs(examples).
inline void ExpectWhole(const Answer& answer, uint32_t examples) {
  ASSERT_TRUE(answer.status.ok()) << answer.status.message();
  ASSERT_EQ(answer.response.outputs.size(), 2U);
  EXPECT_EQ(answer.response.outputs[0].values, LargeScores(examples));
  EXPECT_EQ(answer.response.outputs[1].values, kLargeProfile);
}

// A request whose answer can be waited for; a second answer throws and fails the test.
inline std::pair<std::unique_ptr<Request>, std::future<Answer>> Ask(const FakeInputs& inputs) {
  auto request = FakeRequest(inputs);
  const auto promise = std::make_shared<std::promise<Answer>>();
  request->answer = [promise](Status status, Response response) {
    promise->set_value({std::move(status), std::move(response)});
  };
  return {std::move(request), promise->get_future()};
}

inline std::future<Answer> Predict(Engine* engine, const FakeInputs& inputs) {
  auto [request, answer] = Ask(inputs);
  engine->Predict(std::move(request));
  return std::move(answer);
}

inline std::unique_ptr<Engine> StartWith(std::unique_ptr<Model> model,
                                         const EngineOptions& options = {}) {
  Result<std::unique_ptr<Engine>> engine = Engine::Start(std::move(model), options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return std::move(*engine);
}

inline void ExpectGood(const Answer& answer) {
  ASSERT_TRUE(answer.status.ok()) << answer.status.message();
  ASSERT_EQ(answer.response.outputs.size(), 2U);
  EXPECT_EQ(answer.response.outputs[0].values, kGoodScores);
  EXPECT_EQ(answer.response.outputs[1].values, kGoodProfile);
}

inline FakeInputs BadInputs() {
  FakeInputs inputs = GoodInputs();
  inputs.sparse[1].values[1] = -5;
  return inputs;
}

// A model whose first run blocks until it is released.
class Gate {
 public:
  std::unique_ptr<FakeModel> model() {
    auto model = std::make_unique<FakeModel>();
    model->before_run = [this](const Slot&) {
      if (first_.exchange(false)) {
        running_.count_down();
        open_.wait();
      }
      return Status();
    };
    return model;
  }
  void WaitUntilRunning() { running_.wait(); }
  bool IsRunning() const { return running_.try_wait(); }
  void Open() { open_.count_down(); }

 private:
  std::atomic<bool> first_ = true;
  std::latch running_{1};
  std::latch open_{1};
};

}  // namespace embershard
