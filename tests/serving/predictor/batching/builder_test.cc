#include "batching/builder.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "batching/fake_model.h"
#include "batching/request_validation.h"

namespace embershard {
namespace {

enum Sparse { kUser, kItem, kHistory, kGenre, kTag };

using Rows = std::vector<int64_t>;
using Floats = std::vector<float>;

std::vector<std::unique_ptr<Request>> Requests(const Model& model,
                                               const std::vector<FakeInputs>& inputs) {
  std::vector<std::unique_ptr<Request>> requests;
  for (const FakeInputs& one : inputs) {
    requests.push_back(FakeRequest(one));
    const Status status = CheckRequest(model, model.manifest().limits, requests.back().get());
    EXPECT_TRUE(status.ok()) << status.message();
  }
  return requests;
}

struct Built {
  Slot slot;
  std::vector<std::vector<UnknownIdCount>> unknown_ids;
};

Built Build(const Model& model, const std::vector<FakeInputs>& inputs) {
  Built built;
  BuildBatch(model, Requests(model, inputs), &built.slot, &built.unknown_ids);
  return built;
}

FakeInputs OneExample() {
  return {.num_examples = 1,
          .dense = {{40}, {9}, {8}},
          .sparse = {{{1}, {2}, {}}, {}, {}, {}, {}},
          .outputs_wanted = {0, 1}};
}

TEST(Builder, MergesRequestsFeatureByFeature) {
  const FakeModel model;
  const Slot slot = Build(model, {GoodInputs(), OneExample()}).slot;
  EXPECT_EQ(slot.requests, 2U);
  EXPECT_EQ(slot.examples, 3U);
  EXPECT_EQ(slot.request_of_example, (Rows{0, 0, 1}));
  EXPECT_EQ(slot.request_dense, (Floats{30, 40}));
  EXPECT_EQ(slot.example_dense, (Floats{1.5, 0.25, 2.5, 0.25, 9, 8}));
  ASSERT_EQ(slot.sparse.size(), 5U);
  EXPECT_EQ(slot.sparse[kUser].offsets, (Rows{0, 1, 2}));
  EXPECT_EQ(slot.sparse[kUser].rows, (Rows{7, 2}));
  EXPECT_EQ(slot.sparse[kItem].offsets, (Rows{0, 1, 2, 2}));
  EXPECT_EQ(slot.sparse[kItem].rows, (Rows{101, 205}));
  EXPECT_EQ(slot.sparse[kHistory].offsets, (Rows{0, 2, 2}));
  EXPECT_EQ(slot.sparse[kGenre].offsets, (Rows{0, 2, 2, 2}));
  EXPECT_EQ(slot.sparse[kGenre].rows, (Rows{4, 49}));
  EXPECT_EQ(slot.sparse[kGenre].weights, (Floats{0.5, 2}));
  EXPECT_EQ(slot.sparse[kTag].offsets, (Rows{0, 0, 0, 0}));
  EXPECT_EQ(slot.sparse[kTag].rows, Rows{});
  EXPECT_EQ(slot.sparse[kUser].weights, Floats{});
}

FakeInputs NoExamples() {
  return {.num_examples = 0,
          .dense = {{50}, {}, {}},
          .sparse = {{{1}, {3}, {}}, {}, {}, {}, {}},
          .outputs_wanted = {1}};
}

TEST(Builder, ARequestWithoutExamplesTakesNoneOfTheBatch) {
  const FakeModel model;
  const Slot slot = Build(model, {NoExamples(), OneExample(), NoExamples()}).slot;
  EXPECT_EQ(slot.requests, 3U);
  EXPECT_EQ(slot.examples, 1U);
  EXPECT_EQ(slot.request_of_example, Rows{1});
  EXPECT_EQ(slot.request_dense, (Floats{50, 40, 50}));
  EXPECT_EQ(slot.sparse[kUser].rows, (Rows{3, 2, 3}));
  EXPECT_EQ(slot.sparse[kItem].offsets, (Rows{0, 0}));
}

TEST(Builder, ABatchWithoutExamplesGetsOneOfZeros) {
  const FakeModel model;
  Built built = Build(model, {GoodInputs(), GoodInputs()});
  BuildBatch(model, Requests(model, {NoExamples(), NoExamples()}), &built.slot, &built.unknown_ids);
  EXPECT_EQ(built.slot.requests, 2U);
  EXPECT_EQ(built.slot.examples, 1U);
  EXPECT_EQ(built.slot.request_of_example, Rows{0});
  EXPECT_EQ(built.slot.example_dense, (Floats{0, 0}));
  EXPECT_EQ(built.slot.sparse[kItem].offsets, (Rows{0, 0}));
  EXPECT_EQ(built.slot.sparse[kItem].rows, Rows{});
  EXPECT_EQ(built.slot.sparse[kUser].rows, (Rows{3, 3}));
}

TEST(Builder, CountsUnknownIdsPerRequestAndFeature) {
  const FakeModel model;
  FakeInputs second = GoodInputs();
  second.sparse[kHistory] = {{3}, {-1, 100, 5}, {}};
  const Built built = Build(model, {GoodInputs(), OneExample(), second});
  ASSERT_EQ(built.unknown_ids.size(), 3U);
  ASSERT_EQ(built.unknown_ids[0].size(), 1U);
  EXPECT_EQ(built.unknown_ids[0][0].sparse_input, kGenre);
  EXPECT_EQ(built.unknown_ids[0][0].count, 1U);
  EXPECT_TRUE(built.unknown_ids[1].empty());
  ASSERT_EQ(built.unknown_ids[2].size(), 2U);
  EXPECT_EQ(built.unknown_ids[2][0].sparse_input, kHistory);
  EXPECT_EQ(built.unknown_ids[2][0].count, 2U);
  EXPECT_EQ(built.slot.sparse[kHistory].rows, (Rows{3, 9, kZeroRow, kZeroRow, 5}));
}

TEST(Builder, KeepLastKeepsTheEndOfALongListAndCountsOnlyThere) {
  const FakeModel model;
  FakeInputs inputs = GoodInputs();
  inputs.sparse[kHistory] = {{5}, {-1, 1, 2, -3, 4}, {}};
  const Built built = Build(model, {inputs});
  EXPECT_EQ(built.slot.sparse[kHistory].rows, (Rows{2, kZeroRow, 4}));
  EXPECT_EQ(built.slot.sparse[kHistory].offsets, (Rows{0, 3}));
  ASSERT_EQ(built.unknown_ids[0].size(), 2U);
  EXPECT_EQ(built.unknown_ids[0][0].sparse_input, kHistory);
  EXPECT_EQ(built.unknown_ids[0][0].count, 1U);
}

TEST(Builder, KeepFirstKeepsTheBeginningOfEachListWithItsWeights) {
  Manifest manifest = FakeManifest();
  manifest.schema.sparse[kGenre].max_ids = 2;
  manifest.schema.sparse[kGenre].keep = Keep::kFirst;
  const FakeModel model(manifest);
  FakeInputs inputs = GoodInputs();
  inputs.sparse[kGenre] = {{3, 2}, {1, 2, 3, 4, 5}, {10, 20, 30, 40, 50}};
  const SlotSparse genre = Build(model, {inputs}).slot.sparse[kGenre];
  EXPECT_EQ(genre.rows, (Rows{1, 2, 4, 5}));
  EXPECT_EQ(genre.weights, (Floats{10, 20, 40, 50}));
  EXPECT_EQ(genre.offsets, (Rows{0, 2, 4}));
}

TEST(Builder, LeavesNothingOfALargerBatchInASlotUsedAgain) {
  const FakeModel model;
  Built built;
  BuildBatch(model, Requests(model, {GoodInputs(), GoodInputs()}), &built.slot, &built.unknown_ids);
  BuildBatch(model, Requests(model, {OneExample()}), &built.slot, &built.unknown_ids);
  const Slot& slot = built.slot;
  EXPECT_EQ(slot.request_of_example, Rows{0});
  EXPECT_EQ(slot.request_dense, Floats{40});
  EXPECT_EQ(slot.example_dense, (Floats{9, 8}));
  EXPECT_EQ(slot.sparse[kGenre].rows, Rows{});
  EXPECT_EQ(slot.sparse[kGenre].weights, Floats{});
  EXPECT_EQ(slot.sparse[kGenre].offsets, (Rows{0, 0}));
  ASSERT_EQ(built.unknown_ids.size(), 1U);
  EXPECT_TRUE(built.unknown_ids[0].empty());
}

TEST(Builder, CutsEachRequestItsOwnOutputs) {
  FakeModel model;
  const auto requests = Requests(model, {OneExample(), GoodInputs()});
  requests[1]->outputs_wanted = {1};
  Built built;
  BuildBatch(model, requests, &built.slot, &built.unknown_ids);
  ASSERT_TRUE(model.Run(built.slot).ok());
  const Schema& schema = model.manifest().schema;

  const auto first = CutOutputs(schema, built.slot, *requests[0], 0, 0);
  ASSERT_EQ(first.size(), 2U);
  EXPECT_EQ(first[0].output, 0U);
  EXPECT_EQ(first[0].values, Floats{40 + 2 + 9 + 8});
  EXPECT_EQ(first[1].values, (Floats{40, 1}));
  const auto second = CutOutputs(schema, built.slot, *requests[1], 1, 1);
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(second[0].output, 1U);
  EXPECT_EQ(second[0].values, kGoodProfile);
}

// Random requests for the fake model, all acceptable.
class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}

  FakeInputs Inputs() {
    FakeInputs inputs;
    inputs.num_examples = static_cast<uint32_t>(Below(4) + 1);
    inputs.dense = {Values(1), Values(inputs.num_examples), Values(Below(2) * inputs.num_examples)};
    const int64_t known[] = {10, 2000, 150, 60, 10};
    const bool in_request[] = {true, false, true, false, false};
    for (size_t i = 0; i < 5; ++i) {
      FakeLists lists;
      if (Below(4) > 0) {
        for (size_t list = 0; list < (in_request[i] ? 1 : inputs.num_examples); ++list) {
          const auto length = static_cast<int32_t>(Below(i == kHistory ? 7 : 2));
          lists.lengths.push_back(length);
          for (int32_t k = 0; k < length; ++k) lists.values.push_back(Below(known[i]));
        }
      }
      if (i == kGenre) lists.weights = Values(lists.values.size());
      inputs.sparse.push_back(lists);
    }
    return inputs;
  }

 private:
  int64_t Below(int64_t end) { return std::uniform_int_distribution<int64_t>(0, end - 1)(engine_); }

  Floats Values(size_t count) {
    Floats values(count);
    for (float& value : values) value = static_cast<float>(Below(1000));
    return values;
  }

  std::mt19937 engine_;
};

template <class T>
void Append(const std::vector<T>& values, std::vector<T>* all) {
  all->insert(all->end(), values.begin(), values.end());
}

// Appends the batch of a single request to `all`.
void AppendAlone(const Slot& alone, Slot* all) {
  all->request_of_example.insert(all->request_of_example.end(), alone.examples,
                                 static_cast<int64_t>(all->requests));
  all->requests += 1;
  all->examples += alone.examples;
  Append(alone.request_dense, &all->request_dense);
  Append(alone.example_dense, &all->example_dense);
  all->sparse.resize(5, {.rows = {}, .offsets = {0}, .weights = {}});
  for (size_t i = 0; i < 5; ++i) {
    const int64_t before = all->sparse[i].offsets.back();
    for (size_t k = 1; k < alone.sparse[i].offsets.size(); ++k) {
      all->sparse[i].offsets.push_back(before + alone.sparse[i].offsets[k]);
    }
    Append(alone.sparse[i].rows, &all->sparse[i].rows);
    Append(alone.sparse[i].weights, &all->sparse[i].weights);
  }
}

TEST(Builder, AMergedBatchConcatenatesItsRequests) {
  const FakeModel model;
  Random random(20240517);
  for (int round = 0; round < 200; ++round) {
    std::vector<FakeInputs> inputs(1 + static_cast<size_t>(round % 7));
    for (FakeInputs& one : inputs) one = random.Inputs();
    const Slot merged = Build(model, inputs).slot;
    Slot expected;
    for (const FakeInputs& one : inputs) AppendAlone(Build(model, {one}).slot, &expected);
    ASSERT_EQ(merged.requests, expected.requests);
    ASSERT_EQ(merged.request_of_example, expected.request_of_example);
    ASSERT_EQ(merged.request_dense, expected.request_dense);
    ASSERT_EQ(merged.example_dense, expected.example_dense);
    for (size_t i = 0; i < 5; ++i) {
      ASSERT_EQ(merged.sparse[i].offsets, expected.sparse[i].offsets);
      ASSERT_EQ(merged.sparse[i].rows, expected.sparse[i].rows);
      ASSERT_EQ(merged.sparse[i].weights, expected.sparse[i].weights);
    }
  }
}

}  // namespace
}  // namespace embershard
