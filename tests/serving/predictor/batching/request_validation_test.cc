#include "batching/request_validation.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "batching/fake_model.h"

namespace embershard {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int32_t kLongest = std::numeric_limits<int32_t>::max();

enum Dense { kAge, kPrice, kDiscount };
enum Sparse { kUser, kItem, kHistory, kGenre, kTag };

Status Check(const Model& model, Request* request) {
  return CheckRequest(model, model.manifest().limits, request);
}

struct Refusal {
  const char* name;
  void (*spoil)(FakeInputs*);
  const char* message;
};

void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.name; }

class DoorRefuses : public ::testing::TestWithParam<Refusal> {};

TEST_P(DoorRefuses, WithTheWholeStory) {
  const FakeModel model;
  FakeInputs inputs = GoodInputs();
  GetParam().spoil(&inputs);
  const auto request = FakeRequest(inputs);
  const Status status = Check(model, request.get());
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), GetParam().message);
}

const Refusal kRefusals[] = {
    {"no_examples", [](FakeInputs* in) { in->num_examples = 0; },
     "num_examples: expected 1..8, got 0; without examples, name only outputs in request scope: "
     "'profile'"},
    {"too_many_examples", [](FakeInputs* in) { in->num_examples = 9; },
     "num_examples: expected 1..8, got 9"},
    {"most_examples_of_32_bits", [](FakeInputs* in) { in->num_examples = 4294967295U; },
     "num_examples: expected 1..8, got 4294967295"},
    {"missing_dense_in_request_scope", [](FakeInputs* in) { in->dense[kAge] = {}; },
     "feature 'age': missing: expected 1 values, got none (it has no default)"},
    {"missing_dense_in_example_scope", [](FakeInputs* in) { in->dense[kPrice] = {}; },
     "feature 'price': missing: expected 2 values, got none (it has no default)"},
    {"too_few_dense_values", [](FakeInputs* in) { in->dense[kPrice] = {1}; },
     "feature 'price': expected 2 values, got 1"},
    {"too_many_dense_values_in_request_scope", [](FakeInputs* in) { in->dense[kAge] = {1, 2}; },
     "feature 'age': expected 1 values, got 2"},
    {"wrong_count_of_values_with_a_default", [](FakeInputs* in) { in->dense[kDiscount] = {1}; },
     "feature 'discount': expected 2 values, got 1"},
    {"nan_in_example_scope", [](FakeInputs* in) { in->dense[kPrice][1] = kNan; },
     "feature 'price': value at example 1 must be finite, got nan"},
    {"infinity_in_request_scope", [](FakeInputs* in) { in->dense[kAge][0] = -kInfinity; },
     "feature 'age': value must be finite, got -inf"},
    {"too_few_lengths", [](FakeInputs* in) { in->sparse[kItem].lengths = {2}; },
     "feature 'item': expected 2 lengths, got 1"},
    {"lengths_per_example_in_request_scope",
     [](FakeInputs* in) { in->sparse[kUser].lengths = {1, 0}; },
     "feature 'user': expected 1 lengths, got 2"},
    {"values_without_lengths", [](FakeInputs* in) { in->sparse[kItem].lengths = {}; },
     "feature 'item': expected 2 lengths, got 0"},
    {"negative_length", [](FakeInputs* in) { in->sparse[kItem].lengths = {3, -1}; },
     "feature 'item': length at example 1 must not be negative, got -1"},
    {"negative_length_in_request_scope",
     [](FakeInputs* in) { in->sparse[kUser].lengths = {-2147483647 - 1}; },
     "feature 'user': length must not be negative, got -2147483648"},
    {"lengths_past_31_bits", [](FakeInputs* in) { in->sparse[kItem].lengths = {kLongest, 1}; },
     "feature 'item': lengths sum to 2147483648, expected at most 2147483647"},
    {"lengths_that_wrap_around_to_the_count",
     [](FakeInputs* in) {
       in->num_examples = 4;
       in->dense[kPrice] = {1, 2, 3, 4};
       in->sparse[kItem].lengths = {kLongest, kLongest, 2, 2};
     },
     "feature 'item': lengths sum to 4294967298, expected at most 2147483647"},
    {"lengths_beyond_the_values", [](FakeInputs* in) { in->sparse[kItem].lengths = {1, 2}; },
     "feature 'item': lengths sum to 3, but there are 2 values"},
    {"values_beyond_the_lengths", [](FakeInputs* in) { in->sparse[kItem].lengths = {1, 0}; },
     "feature 'item': lengths sum to 1, but there are 2 values"},
    {"huge_length_over_few_values",
     [](FakeInputs* in) { in->sparse[kItem].lengths = {kLongest, 0}; },
     "feature 'item': lengths sum to 2147483647, but there are 2 values"},
    {"weights_on_an_unweighted_input", [](FakeInputs* in) { in->sparse[kItem].weights = {1, 1}; },
     "feature 'item': is not weighted: expected no weights, got 2"},
    {"weights_of_an_input_left_out", [](FakeInputs* in) { in->sparse[kTag].weights = {1}; },
     "feature 'tag': expected 2 lengths, got 0"},
    {"no_weights_on_a_weighted_input", [](FakeInputs* in) { in->sparse[kGenre].weights = {}; },
     "feature 'genre': expected 2 weights, one for each value, got 0"},
    {"too_many_weights", [](FakeInputs* in) { in->sparse[kGenre].weights = {1, 1, 1}; },
     "feature 'genre': expected 2 weights, one for each value, got 3"},
    {"nan_weight", [](FakeInputs* in) { in->sparse[kGenre].weights = {1, kNan}; },
     "feature 'genre': weight at example 0, position 1 must be finite, got nan"},
    {"infinite_weight_behind_an_empty_list",
     [](FakeInputs* in) { in->sparse[kGenre] = {{0, 2}, {1, 2}, {1, kInfinity}}; },
     "feature 'genre': weight at example 1, position 1 must be finite, got inf"},
    {"unknown_id_in_example_scope",
     [](FakeInputs* in) { in->sparse[kItem] = {{2, 1}, {0, 1999, -5}, {}}; },
     "feature 'item': id -5 at example 1, position 0 is not in 0..1999 (policy: reject)"},
    {"unknown_id_in_request_scope", [](FakeInputs* in) { in->sparse[kUser] = {{2}, {0, 10}, {}}; },
     "feature 'user': id 10 at position 1 is not in 0..9 (policy: reject)"},
    {"list_beyond_max_ids",
     [](FakeInputs* in) { in->sparse[kTag] = {{2, 3}, {0, 0, 0, 0, 0}, {}}; },
     "feature 'tag': list at example 1 has 3 ids, expected at most 2"},
    {"too_many_ids_in_all",
     [](FakeInputs* in) {
       in->sparse[kItem].lengths = {8, 8};
       in->sparse[kItem].values.assign(16, 1);
     },
     "request: expected at most 20 ids, got 21"},
};

INSTANTIATE_TEST_SUITE_P(, DoorRefuses, testing::ValuesIn(kRefusals),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Door, CountsTheIdsThatWillBeLookedUp) {
  const FakeModel model;
  const auto request = FakeRequest(GoodInputs());
  ASSERT_TRUE(Check(model, request.get()).ok());
  EXPECT_EQ(request->num_ids, 1U + 2U + 2U + 2U);
}

// The inputs that a user's vector needs, without examples.
FakeInputs WithoutExamples() {
  return {.num_examples = 0,
          .dense = {{30}, {}, {}},
          .sparse = {{{1}, {7}, {}}, {}, {{2}, {3, 9}, {}}, {}, {}},
          .outputs_wanted = {1}};
}

TEST(Door, TakesNoExamplesForOutputsInRequestScopeAlone) {
  const FakeModel model;
  FakeInputs inputs = WithoutExamples();
  EXPECT_TRUE(Check(model, FakeRequest(inputs).get()).ok());
  for (const std::vector<size_t>& wanted : {std::vector<size_t>{0}, {0, 1}, {}}) {
    inputs.outputs_wanted = wanted;
    EXPECT_EQ(Check(model, FakeRequest(inputs).get()).message(),
              "num_examples: expected 1..8, got 0; without examples, name only outputs in request "
              "scope: 'profile'");
  }
}

TEST(Door, NamesNoOutputsToAskForIfNoneIsInRequestScope) {
  Manifest manifest = FakeManifest();
  manifest.schema.outputs[1].scope = Scope::kExample;
  const FakeModel model(manifest);
  EXPECT_EQ(Check(model, FakeRequest(WithoutExamples()).get()).message(),
            "num_examples: expected 1..8, got 0 (no output is in request scope)");
}

TEST(Door, StillChecksTheRequestsSideWhereThereAreNoExamples) {
  const FakeModel model;
  FakeInputs inputs = WithoutExamples();
  inputs.dense[kPrice] = {1};
  EXPECT_EQ(Check(model, FakeRequest(inputs).get()).message(),
            "feature 'price': expected 0 values, got 1");
  inputs = WithoutExamples();
  inputs.sparse[kItem] = {{1}, {101}, {}};
  EXPECT_EQ(Check(model, FakeRequest(inputs).get()).message(),
            "feature 'item': expected 0 lengths, got 1");
  inputs = WithoutExamples();
  inputs.dense[kAge] = {};
  EXPECT_EQ(Check(model, FakeRequest(inputs).get()).message(),
            "feature 'age': missing: expected 1 values, got none (it has no default)");
}

TEST(Door, TakesExactlyTheLimits) {
  const FakeModel model;
  FakeInputs inputs = {
      .num_examples = 8, .dense = {{1}, std::vector<float>(8, 1), {}}, .sparse = {}};
  inputs.sparse.resize(5);
  inputs.sparse[kItem] = {{20, 0, 0, 0, 0, 0, 0, 0}, std::vector<int64_t>(20, 1), {}};
  const auto request = FakeRequest(inputs);
  const Status status = Check(model, request.get());
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(request->num_ids, 20U);
}

TEST(Door, AppliesTheLimitsItIsGivenAndLooksAtNoValueBeyondThem) {
  const FakeModel model;
  FakeInputs inputs = GoodInputs();
  inputs.dense[kPrice][0] = kNan;
  inputs.sparse[kItem].values[0] = -5;
  const auto request = FakeRequest(inputs);
  EXPECT_EQ(CheckRequest(model, {.max_examples = 1, .max_ids = 20}, request.get()).message(),
            "num_examples: expected 1..1, got 2");
  EXPECT_EQ(CheckRequest(model, {.max_examples = 8, .max_ids = 6}, request.get()).message(),
            "request: expected at most 6 ids, got 7");
  EXPECT_EQ(CheckRequest(model, {.max_examples = 2, .max_ids = 7}, request.get()).message(),
            "feature 'price': value at example 0 must be finite, got nan");
}

TEST(Door, NeitherChecksNorCountsIdsThatMaxIdsCutsAway) {
  Manifest manifest = FakeManifest();
  manifest.schema.sparse[kTag].keep = Keep::kLast;
  const FakeModel model(manifest);
  FakeInputs inputs = GoodInputs();
  inputs.sparse[kTag] = {{3, 1}, {-1, 5, 6, 7}, {}};
  auto request = FakeRequest(inputs);
  ASSERT_TRUE(Check(model, request.get()).ok());
  EXPECT_EQ(request->num_ids, 7U + 3U);

  inputs.sparse[kTag].values = {5, -1, 6, 7};
  request = FakeRequest(inputs);
  EXPECT_EQ(Check(model, request.get()).message(),
            "feature 'tag': id -1 at example 0, position 1 is not in 0..9 (policy: reject)");

  inputs.sparse[kTag].values = {5, 6, 7, 99};
  request = FakeRequest(inputs);
  EXPECT_EQ(Check(model, request.get()).message(),
            "feature 'tag': id 99 at example 1, position 0 is not in 0..9 (policy: reject)");
}

TEST(Door, KeepFirstCutsTheEndAndItsWeights) {
  Manifest manifest = FakeManifest();
  manifest.schema.sparse[kGenre].max_ids = 1;
  manifest.schema.sparse[kGenre].keep = Keep::kFirst;
  const FakeModel model(manifest);
  FakeInputs inputs = GoodInputs();
  inputs.sparse[kGenre] = {{2, 1}, {1, 2, 3}, {1, kNan, 1}};
  auto request = FakeRequest(inputs);
  EXPECT_TRUE(Check(model, request.get()).ok());

  inputs.sparse[kGenre].weights = {1, 1, kNan};
  request = FakeRequest(inputs);
  EXPECT_EQ(Check(model, request.get()).message(),
            "feature 'genre': weight at example 1, position 0 must be finite, got nan");
}

TEST(Door, SpeaksOfTheVocabularyWhereThereIsOne) {
  Manifest manifest = FakeManifest();
  manifest.schema.sparse[kItem].ids.kind = IdMapKind::kVocab;
  const FakeModel model(manifest);
  FakeInputs inputs = GoodInputs();
  inputs.sparse[kItem].values = {1, 5000};
  const auto request = FakeRequest(inputs);
  EXPECT_EQ(Check(model, request.get()).message(),
            "feature 'item': id 5000 at example 1, position 0 is not one of the 2000 in the "
            "vocabulary (policy: reject)");
}

TEST(Door, RefusesARequestMadeForAnotherSchema) {
  const FakeModel model;
  const auto request = FakeRequest(GoodInputs());
  request->schema = 0x9f86d081884c7d65;
  EXPECT_TRUE(Check(model, request.get()).ok());
  request->schema = 0xab;
  const Status status = Check(model, request.get());
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "request: expected schema 9f86d081884c7d65, got 00000000000000ab: it was made for "
            "another engine");
}

TEST(Door, RefusesPositionsThatAreNotInTheSchema) {
  const FakeModel model;
  auto request = FakeRequest(GoodInputs());
  request->sparse.pop_back();
  EXPECT_EQ(Check(model, request.get()).message(),
            "request: expected 3 dense and 5 sparse inputs, got 3 and 4");
  request = FakeRequest(GoodInputs());
  request->dense.push_back({});
  EXPECT_EQ(Check(model, request.get()).message(),
            "request: expected 3 dense and 5 sparse inputs, got 4 and 5");
  for (const auto& [wanted, wrong] : std::vector<std::pair<std::vector<size_t>, const char*>>{
           {{0, 2}, "2"}, {{1, 0}, "0"}, {{1, 1}, "1"}}) {
    request = FakeRequest(GoodInputs());
    request->outputs_wanted = wanted;
    EXPECT_EQ(
        Check(model, request.get()).message(),
        std::string("request: outputs_wanted: expected ascending positions below 2, got ") + wrong);
  }
}

TEST(Door, ReadsStridedColumnsOfAMatrix) {
  const FakeModel model;
  // price and discount as columns of a matrix [2, 2]; only price at example 1 is bad.
  const std::vector<float> matrix = {1, 2, kInfinity, 4};
  auto request = FakeRequest(GoodInputs());
  request->dense[kPrice] = {Unaligned<float>(matrix.data(), 4), 2};
  request->dense[kDiscount] = {Unaligned<float>(matrix.data() + 1, 3), 2};
  EXPECT_EQ(Check(model, request.get()).message(),
            "feature 'price': value at example 1 must be finite, got inf");
}

}  // namespace
}  // namespace embershard
