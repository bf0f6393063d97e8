// Requests that are given together, on several threads.

#include "engine/model_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "batching/large_inputs.h"
#include "engine/asking.h"

namespace embershard {
namespace {

// A runner with a thread for each of several slots, and what its batches had.
class Merging {
 public:
  explicit Merging(size_t slots, size_t batch_examples = 1000) {
    auto model = std::make_unique<FakeModel>(LargeManifest());
    model->num_slots = slots;
    model->before_run = [this](const Slot& slot) {
      const std::lock_guard lock(mutex_);
      batches_.push_back(slot.examples);
      threads_.insert(std::this_thread::get_id());
      slots_.insert(slot.number);
      return broken_ == slot.examples ? Internal("broken") : Status();
    };
    auto runner = ModelRunner::Start(std::move(model), {.max_batch_examples = batch_examples},
                                     kSampleTolerance, slots);
    EXPECT_TRUE(runner.ok()) << runner.status().message();
    runner_ = std::move(*runner);
    batches_.clear();
    threads_.clear();
    slots_.clear();
  }

  std::vector<Answer> Run(const std::vector<uint32_t>& examples,
                          const std::vector<size_t>& outputs_wanted = {0, 1}) {
    std::vector<std::unique_ptr<Request>> requests;
    std::vector<std::future<Answer>> answers;
    for (const uint32_t count : examples) {
      auto [request, answer] = Ask(LargeInputs(count));
      request->outputs_wanted = outputs_wanted;
      requests.push_back(std::move(request));
      answers.push_back(std::move(answer));
    }
    runner_->PredictMerged(std::move(requests));
    std::vector<Answer> got;
    for (auto& answer : answers) got.push_back(answer.get());
    return got;
  }

  // Examples of each batch since the last call, ascending.
  std::vector<size_t> Batches() {
    std::ranges::sort(batches_);
    return std::exchange(batches_, {});
  }
  size_t runs() const { return batches_.size(); }
  size_t threads() const { return threads_.size(); }
  std::set<size_t> slots() const { return slots_; }
  void Break(size_t examples) { broken_ = examples; }

 private:
  std::mutex mutex_;
  std::vector<size_t> batches_;        // Guarded by mutex_.
  std::set<std::thread::id> threads_;  // Guarded by mutex_.
  std::set<size_t> slots_;             // Guarded by mutex_. Their numbers.
  size_t broken_ = 0;                  // Batches of so many examples fail.
  std::unique_ptr<ModelRunner> runner_;
};

TEST(ModelRunner, CutsOneRequestIntoAShareForEachThreadAndSlot) {
  Merging merging(4);
  ExpectWhole(merging.Run({100})[0], 100);
  EXPECT_EQ(merging.Batches(), (std::vector<size_t>{25, 25, 25, 25}));
  EXPECT_EQ(merging.threads(), 4U);
  EXPECT_EQ(merging.slots(), (std::set<size_t>{0, 1, 2, 3}));
}

TEST(ModelRunner, GivesEachThreadAboutAsManyExamples) {
  Merging merging(2);
  const std::vector<uint32_t> examples(16, 10);
  const std::vector<Answer> answers = merging.Run(examples);
  for (const Answer& answer : answers) ExpectWhole(answer, 10);
  EXPECT_EQ(merging.Batches(), (std::vector<size_t>{80, 80}));
}

TEST(ModelRunner, WakesNoThreadForLittle) {
  Merging merging(4);
  ExpectWhole(merging.Run({16})[0], 16);
  EXPECT_EQ(merging.Batches(), std::vector<size_t>{16});
  ExpectWhole(merging.Run({17})[0], 17);
  EXPECT_EQ(merging.Batches(), (std::vector<size_t>{8, 9}));
}

TEST(ModelRunner, RunsBatchesOfAtMostTheBudget) {
  Merging merging(2, 10);
  const std::vector<Answer> answers = merging.Run({45, 3, 8});
  ExpectWhole(answers[0], 45);
  ExpectWhole(answers[1], 3);
  ExpectWhole(answers[2], 8);
  const std::vector<size_t> batches = merging.Batches();
  EXPECT_LE(batches.back(), 10U);
  EXPECT_EQ(std::accumulate(batches.begin(), batches.end(), size_t{0}), 45U + 3 + 8);
}

TEST(ModelRunner, CountsOneWithoutExamplesAsOne) {
  Merging merging(2, 10);
  std::vector<uint32_t> none(25, 0);
  const std::vector<Answer> answers = merging.Run(none, {1});
  for (const Answer& answer : answers) {
    ASSERT_TRUE(answer.status.ok()) << answer.status.message();
    EXPECT_EQ(answer.response.outputs[0].values, kLargeProfile);
  }
  EXPECT_EQ(merging.runs(), 4U);  // 13 and 12 of them.
}

TEST(ModelRunner, OnOneThreadRunsAllOnTheCallers) {
  Merging merging(1);
  const std::vector<Answer> answers = merging.Run({100, 200});
  ExpectWhole(answers[0], 100);
  ExpectWhole(answers[1], 200);
  EXPECT_EQ(merging.Batches(), std::vector<size_t>{300});
}

TEST(ModelRunner, ARequestFailsOnceWhereOneOfItsChunksDoes) {
  Merging merging(4);
  merging.Break(25);
  const std::vector<Answer> answers = merging.Run({100});
  EXPECT_EQ(answers[0].status.message(), "broken");
  merging.Break(0);
  ExpectWhole(merging.Run({100})[0], 100);
}

TEST(ModelRunner, CallsOfSeveralThreadsAreAnsweredOneAfterTheOther) {
  Merging merging(3);
  std::vector<std::thread> callers;
  for (uint32_t t = 0; t < 4; ++t) {
    callers.emplace_back([&merging, t] {
      for (uint32_t i = 0; i < 50; ++i) {
        const std::vector<Answer> answers = merging.Run({1 + 7 * i, 60 + t});
        ExpectWhole(answers[0], 1 + 7 * i);
        ExpectWhole(answers[1], 60 + t);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST(ModelRunner, NothingIsAnsweredWithNothing) {
  Merging merging(2);
  EXPECT_TRUE(merging.Run({}).empty());
  EXPECT_TRUE(merging.Batches().empty());
}

}  // namespace
}  // namespace embershard
