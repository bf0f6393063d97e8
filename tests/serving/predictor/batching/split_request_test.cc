#include "batching/split_request.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "batching/large_inputs.h"
#include "batching/request_validation.h"

namespace embershard {
namespace {

// A request that is cut, and its answer.
class Whole {
 public:
  Whole(const FakeInputs& inputs, const ChunkBudget& budget) : whole_(FakeRequest(inputs)) {
    const Status status = CheckRequest(model_, model_.manifest().limits, whole_.get());
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(IsLarger(*whole_, budget));
    whole_->answer = [this](Status status, Response response) {
      ++answers_;
      status_ = std::move(status);
      response_ = std::move(response);
    };
    split_ =
        std::make_shared<SplitRequest>(&model_.manifest().schema, budget, *whole_,
                                       [this](const SplitRequest&) { return std::move(whole_); });
  }

  SplitRequest& split() { return *split_; }
  std::unique_ptr<Request> Take() { return split_->TakeNext(split_); }

  // Takes all chunks, answers each without outputs, and returns their numbers of examples.
  std::vector<uint32_t> TakeAll() {
    std::vector<uint32_t> examples;
    while (split_->has_next()) {
      const std::unique_ptr<Request> chunk = Take();
      EXPECT_EQ(Sum(examples), chunk->first_example);
      examples.push_back(chunk->num_examples);
      chunk->answer({}, {});
    }
    return examples;
  }

  // The request has been answered, and its owner releases it.
  void Leave() { whole_ = nullptr; }

  int answers() const { return answers_; }
  const Status& status() const { return status_; }
  const Response& response() const { return response_; }

 private:
  static uint32_t Sum(const std::vector<uint32_t>& numbers) {
    uint32_t sum = 0;
    for (const uint32_t number : numbers) sum += number;
    return sum;
  }

  const FakeModel model_{LargeManifest()};
  std::unique_ptr<Request> whole_;
  std::shared_ptr<SplitRequest> split_;
  int answers_ = 0;
  Status status_;
  Response response_;
};

using Counts = std::vector<uint32_t>;

template <class T>
std::vector<T> Read(Unaligned<T> values) {
  std::vector<T> read(values.size());
  values.CopyTo(read.data());
  return read;
}

TEST(SplitRequest, OnlyARequestBeyondTheBudgetIsLarger) {
  Request request;
  request.num_examples = 10;
  request.num_ids = 100;
  EXPECT_FALSE(IsLarger(request, {.examples = 10, .ids = 100}));
  EXPECT_TRUE(IsLarger(request, {.examples = 9, .ids = 100}));
  EXPECT_TRUE(IsLarger(request, {.examples = 10, .ids = 99}));
  request.num_examples = 1;
  EXPECT_FALSE(IsLarger(request, {.examples = 10, .ids = 99}));
  request.num_examples = 0;
  EXPECT_FALSE(IsLarger(request, {.examples = 10, .ids = 99}));
}

TEST(SplitRequest, AreEquallyManyExamplesEach) {
  EXPECT_EQ(Whole(LargeInputs(10), {.examples = 4, .ids = 1000}).TakeAll(), (Counts{4, 4, 2}));
  EXPECT_EQ(Whole(LargeInputs(9), {.examples = 8, .ids = 1000}).TakeAll(), (Counts{5, 4}));
  EXPECT_EQ(Whole(LargeInputs(8), {.examples = 4, .ids = 1000}).TakeAll(), (Counts{4, 4}));
  EXPECT_EQ(Whole(LargeInputs(3), {.examples = 1, .ids = 1000}).TakeAll(), (Counts{1, 1, 1}));
}

TEST(SplitRequest, EndBeforeTheirIdsExceedTheBudget) {
  // Examples 0 to 5 have 1, 3, 3, 2, 2, 4 ids, and the request 3 that each chunk has.
  EXPECT_EQ(Whole(LargeInputs(6), {.examples = 9, .ids = 10}).TakeAll(), (Counts{3, 2, 1}));
  // An example with more ids than the budget is not cut.
  EXPECT_EQ(Whole(LargeInputs(6), {.examples = 9, .ids = 5}).TakeAll(), (Counts{1, 1, 1, 1, 1, 1}));
}

TEST(SplitRequest, IdsOfTheRequestLeaveHalfTheBudgetToTheExamples) {
  // The request has 3 of 5 ids. Half of 5, rounded up, is left for the examples.
  EXPECT_EQ(Whole(LargeInputs(4), {.examples = 9, .ids = 5}).TakeAll(), (Counts{1, 1, 1, 1}));
  // The request's own ids exceed the budget: half of it is still for the examples.
  FakeInputs inputs = LargeInputs(4);
  inputs.sparse[3] = {};
  inputs.sparse[4] = {};
  EXPECT_EQ(Whole(inputs, {.examples = 9, .ids = 3}).TakeAll(), (Counts{2, 2}));
}

TEST(SplitRequest, AreViewsOverTheBytesOfTheWhole) {
  Whole whole(LargeInputs(5), {.examples = 3, .ids = 1000});
  const auto first = whole.Take();
  EXPECT_EQ(first->num_ids, 3U + 1 + 3 + 3);
  EXPECT_EQ(Read(first->dense[0].values), (std::vector<float>{30}));
  EXPECT_EQ(Read(first->dense[1].values), (std::vector<float>{0, 1, 2}));
  EXPECT_TRUE(first->dense[2].values.empty());
  EXPECT_EQ(Read(first->sparse[2].values), (std::vector<int64_t>{3, 100}));
  EXPECT_EQ(Read(first->sparse[3].lengths), (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(Read(first->sparse[3].weights), (std::vector<float>{0.5, 0.5, 0.5}));
  EXPECT_EQ(first->outputs_wanted, (std::vector<size_t>{0, 1}));
  const Request& borrowed = *first;
  const std::byte* const prices = borrowed.dense[1].values.bytes();
  const auto second = whole.Take();
  EXPECT_EQ(second->first_example, 3U);
  EXPECT_EQ(second->num_ids, 3U + 2 + 2);
  EXPECT_EQ(second->dense[1].values.bytes(), prices + 3 * sizeof(float));
  EXPECT_EQ(Read(second->dense[0].values), (std::vector<float>{30}));
  EXPECT_EQ(Read(second->dense[1].values), (std::vector<float>{3, 4}));
  EXPECT_EQ(Read(second->sparse[1].values), (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(Read(second->sparse[3].lengths), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(Read(second->sparse[3].values), (std::vector<int64_t>{4}));
  EXPECT_EQ(Read(second->sparse[4].values), (std::vector<int64_t>{5}));
  // Outputs in request scope come from the first chunk only.
  EXPECT_EQ(second->outputs_wanted, (std::vector<size_t>{0}));
}

TEST(SplitRequest, LeaveOfAnInterleavedMatrixWhatIsTheirs) {
  // Rows of {price, discount}, as the packed form has them.
  const std::vector<float> matrix = {1, 10, 2, 20, 3, 30};
  const Unaligned<float> all(matrix.data(), matrix.size());
  const FakeModel model(LargeManifest());
  auto request = FakeRequest(LargeInputs(3));
  request->dense[1] = {all.Slice(0, 6), 2};
  request->dense[2] = {all.Slice(1, 5), 2};
  ASSERT_TRUE(CheckRequest(model, model.manifest().limits, request.get()).ok());
  const auto split = std::make_shared<SplitRequest>(
      &model.manifest().schema, ChunkBudget{.examples = 2, .ids = 1000}, *request,
      [&request](const SplitRequest&) { return std::move(request); });
  const auto first = split->TakeNext(split);
  EXPECT_EQ(first->dense[2].values[first->dense[2].stride], 20);
  first->answer({}, {});
  const auto second = split->TakeNext(split);
  EXPECT_EQ(second->num_examples, 1U);
  EXPECT_EQ(second->dense[1].values[0], 3);
  EXPECT_EQ(second->dense[2].values[0], 30);
}

TEST(SplitRequest, SayWhatIsLeft) {
  Whole whole(LargeInputs(6), {.examples = 4, .ids = 1000});  // 15 ids, and 3 of the request.
  EXPECT_EQ(whole.split().left().requests, 2U);
  EXPECT_EQ(whole.split().left().examples, 6U);
  EXPECT_EQ(whole.split().left().ids, 18U);
  const auto first = whole.Take();
  EXPECT_EQ(whole.split().left().requests, 1U);
  EXPECT_EQ(whole.split().left().examples, 3U);
  EXPECT_EQ(whole.split().left().ids, 11U);
  first->answer({}, {});
  whole.Take()->answer({}, {});
  EXPECT_EQ(whole.split().left().requests, 0U);
  EXPECT_EQ(whole.split().left().examples, 0U);
  EXPECT_EQ(whole.split().left().ids, 0U);
}

Response ResponseOf(std::vector<float> scores) {
  Response response;
  response.outputs = {{0, std::move(scores)}};
  response.timing = {.queue_us = 7, .lookup_us = 10, .dense_us = 20, .total_us = 40};
  return response;
}

TEST(SplitRequest, AreJoinedIntoOneAnswer) {
  Whole whole(LargeInputs(5), {.examples = 3, .ids = 1000});
  Response response = ResponseOf({1, 2, 3});
  response.outputs.push_back({1, {8, 9}});
  response.unknown_ids = {{2, 1}, {3, 4}};
  whole.Take()->answer({}, std::move(response));
  EXPECT_EQ(whole.answers(), 0);
  response = ResponseOf({4, 5});
  response.unknown_ids = {{1, 6}, {3, 2}};
  response.timing = {.queue_us = 50, .lookup_us = 100, .dense_us = 200, .total_us = 400};
  whole.Take()->answer({}, std::move(response));
  EXPECT_EQ(whole.answers(), 1);
  EXPECT_TRUE(whole.status().ok());
  ASSERT_EQ(whole.response().outputs.size(), 2U);
  EXPECT_EQ(whole.response().outputs[0].values, (std::vector<float>{1, 2, 3, 4, 5}));
  EXPECT_EQ(whole.response().outputs[1].values, (std::vector<float>{8, 9}));
  const std::vector<UnknownIdCount>& unknown = whole.response().unknown_ids;
  ASSERT_EQ(unknown.size(), 3U);
  EXPECT_EQ(unknown[0].count, 6U);  // In the order of the inputs.
  EXPECT_EQ(unknown[0].sparse_input, 1U);
  EXPECT_EQ(unknown[1].count, 1U);
  EXPECT_EQ(unknown[2].count, 6U);
  EXPECT_EQ(whole.response().num_ids, 3U + 1 + 3 + 3 + 2 + 2);
  EXPECT_EQ(whole.response().timing.queue_us, 7U);  // Time until the first chunk ran.
  EXPECT_EQ(whole.response().timing.lookup_us, 110U);
  EXPECT_EQ(whole.response().timing.dense_us, 220U);
  EXPECT_EQ(whole.response().timing.total_us, 400U);
}

TEST(SplitRequest, AreJoinedInTheirOrderWhicheverEndsFirst) {
  Whole whole(LargeInputs(5), {.examples = 2, .ids = 1000});
  const auto first = whole.Take();
  const auto second = whole.Take();
  const auto third = whole.Take();
  EXPECT_FALSE(whole.split().has_next());
  Response response = ResponseOf({5});
  response.timing = {.queue_us = 9, .lookup_us = 1, .dense_us = 2, .total_us = 60};
  third->answer({}, std::move(response));
  response = ResponseOf({1, 2});
  response.outputs.push_back({1, {8, 9}});
  first->answer({}, std::move(response));
  EXPECT_EQ(whole.answers(), 0);
  second->answer({}, ResponseOf({3, 4}));
  EXPECT_EQ(whole.answers(), 1);
  EXPECT_EQ(whole.response().outputs[0].values, (std::vector<float>{1, 2, 3, 4, 5}));
  EXPECT_EQ(whole.response().outputs[1].values, (std::vector<float>{8, 9}));
  EXPECT_EQ(whole.response().timing.queue_us, 7U);
  EXPECT_EQ(whole.response().timing.lookup_us, 21U);
  EXPECT_EQ(whole.response().timing.total_us, 60U);
}

TEST(SplitRequest, AreAnsweredFromManyThreads) {
  Whole whole(LargeInputs(600), {.examples = 3, .ids = 10000});
  std::vector<std::unique_ptr<Request>> chunks;
  while (whole.split().has_next()) chunks.push_back(whole.Take());
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&chunks, t] {
      for (size_t i = t; i < chunks.size(); i += 4) {
        const auto first = static_cast<float>(chunks[i]->first_example);
        chunks[i]->answer({}, ResponseOf({first, first + 1, first + 2}));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(whole.answers(), 1);
  std::vector<float> expected(600);
  std::iota(expected.begin(), expected.end(), 0.0F);
  EXPECT_EQ(whole.response().outputs[0].values, expected);
}

TEST(SplitRequest, TheFirstThatFailsAnswersTheWholeOnce) {
  Whole whole(LargeInputs(9), {.examples = 3, .ids = 1000});
  whole.Take()->answer({}, ResponseOf({1, 2, 3}));
  const auto second = whole.Take();
  const auto third = whole.Take();
  second->answer(Internal("broken"), ResponseOf({}));
  EXPECT_EQ(whole.answers(), 1);
  EXPECT_EQ(whole.status().message(), "broken");
  EXPECT_TRUE(whole.response().outputs.empty());
  EXPECT_EQ(whole.response().num_ids, 3U + 7 + 8 + 7);
  EXPECT_EQ(whole.response().timing.queue_us, 7U);
  EXPECT_EQ(whole.response().timing.dense_us, 40U);
  third->answer(Internal("broken, too"), ResponseOf({}));
  EXPECT_EQ(whole.answers(), 1);
}

TEST(SplitRequest, OfAWholeThatHasBeenAnsweredAreAnsweredToNobody) {
  Whole whole(LargeInputs(6), {.examples = 3, .ids = 1000});
  const auto first = whole.Take();
  whole.Leave();
  first->answer(Internal("broken"), {});
  EXPECT_EQ(whole.answers(), 0);
}

}  // namespace
}  // namespace embershard
