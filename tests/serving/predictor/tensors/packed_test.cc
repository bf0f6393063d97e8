#include "tensors/packed.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "batching/fake_model.h"
#include "batching/request_validation.h"

namespace embershard {
namespace {

template <class T>
std::vector<T> Copy(Unaligned<T> view) {
  std::vector<T> values(view.size());
  view.CopyTo(values.data());
  return values;
}

Status Split(const SampleRequest& sample, Request* request) {
  request->num_examples = sample.num_examples;
  const Manifest manifest = FakeManifest();
  return SplitPacked(manifest.schema, manifest.limits,
                     {ViewOf(sample.request_dense), ViewOf(sample.example_dense),
                      ViewOf(sample.lengths), ViewOf(sample.values), ViewOf(sample.weights)},
                     request);
}

TEST(Packed, IsCutIntoTheViewsOfEachInput) {
  const FakeModel model;
  const SampleRequest sample = GoodSample();
  Request request;
  ASSERT_TRUE(Split(sample, &request).ok());
  ASSERT_EQ(request.dense.size(), 3U);
  EXPECT_EQ(request.dense[0].values[0], 30);
  EXPECT_EQ(request.dense[1].values[0], 1.5);
  EXPECT_EQ(request.dense[1].values[1 * request.dense[1].stride], 2.5);
  EXPECT_EQ(request.dense[2].values[1 * request.dense[2].stride], 0.25);

  const FakeInputs expected = GoodInputs();
  ASSERT_EQ(request.sparse.size(), 5U);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(Copy(request.sparse[i].lengths), expected.sparse[i].lengths);
    EXPECT_EQ(Copy(request.sparse[i].values), expected.sparse[i].values);
    EXPECT_EQ(Copy(request.sparse[i].weights), expected.sparse[i].weights);
  }
  EXPECT_EQ(Copy(request.sparse[4].lengths), (std::vector<int32_t>{0, 0}));
  EXPECT_TRUE(CheckRequest(model, model.manifest().limits, &request).ok());
}

TEST(Packed, MayHoldTheRequestsSideAlone) {
  const FakeModel model;
  Request request;
  request.outputs_wanted = {1};
  const SampleRequest sample = {.num_examples = 0,
                                .request_dense = {30},
                                .example_dense = {},
                                .lengths = {1, 2},
                                .values = {7, 3, 9},
                                .weights = {},
                                .outputs = {}};
  const Status status = Split(sample, &request);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(request.dense[0].values[0], 30);
  EXPECT_TRUE(request.dense[2].values.empty());
  EXPECT_EQ(Copy(request.sparse[0].values), std::vector<int64_t>{7});
  EXPECT_TRUE(request.sparse[1].lengths.empty());
  EXPECT_EQ(Copy(request.sparse[2].values), (std::vector<int64_t>{3, 9}));
  EXPECT_TRUE(CheckRequest(model, model.manifest().limits, &request).ok());
}

struct Refusal {
  const char* name;
  void (*spoil)(SampleRequest*);
  const char* message;
};

void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.name; }

class PackedRefuses : public ::testing::TestWithParam<Refusal> {};

TEST_P(PackedRefuses, WithExpectedAndGot) {
  SampleRequest sample = GoodSample();
  GetParam().spoil(&sample);
  Request request;
  const Status status = Split(sample, &request);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), GetParam().message);
}

const Refusal kRefusals[] = {
    {"no_examples", [](SampleRequest* in) { in->num_examples = 0; },
     "num_examples: expected 1..8, got 0; without examples, name only outputs in request scope: "
     "'profile'"},
    {"most_examples_of_32_bits", [](SampleRequest* in) { in->num_examples = 4294967295U; },
     "num_examples: expected 1..8, got 4294967295"},
    {"request_dense_missing", [](SampleRequest* in) { in->request_dense = {}; },
     "packed.request_dense: expected 1 (dense inputs in request scope), got 0"},
    {"example_dense_of_one_example", [](SampleRequest* in) { in->example_dense.resize(2); },
     "packed.example_dense: expected 4 (num_examples x dense inputs in example scope), got 2"},
    {"a_length_missing", [](SampleRequest* in) { in->lengths.pop_back(); },
     "packed.lengths: expected 8 (one for each list of each input), got 7"},
    {"a_negative_length", [](SampleRequest* in) { in->lengths[2] = -1; },
     "feature 'item': length at example 1 must not be negative, got -1"},
    {"a_value_missing", [](SampleRequest* in) { in->values.pop_back(); },
     "packed.values: expected 7 (the sum of the lengths), got 6"},
    {"a_value_too_many", [](SampleRequest* in) { in->values.push_back(1); },
     "packed.values: expected 7 (the sum of the lengths), got 8"},
    {"lengths_far_beyond_the_values",
     [](SampleRequest* in) { in->lengths = {2147483647, 2147483647, 0, 2147483647, 0, 0, 0, 0}; },
     "packed.values: expected 6442450941 (the sum of the lengths), got 7"},
    {"lengths_past_31_bits", [](SampleRequest* in) { in->lengths[1] = 2147483647; },
     "feature 'item': lengths sum to 2147483648, expected at most 2147483647"},
    {"a_weight_missing", [](SampleRequest* in) { in->weights.pop_back(); },
     "packed.weights: expected 2 (one for each value of the weighted inputs), got 1"},
    {"a_weight_too_many", [](SampleRequest* in) { in->weights.push_back(1); },
     "packed.weights: expected 2 (one for each value of the weighted inputs), got 3"},
};

INSTANTIATE_TEST_SUITE_P(, PackedRefuses, ::testing::ValuesIn(kRefusals),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace embershard
