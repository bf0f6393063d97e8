#include "tensors/tensor_map.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "batching/fake_model.h"
#include "batching/request_validation.h"
#include "tensors/tensor_specs.h"

namespace embershard {
namespace {

const FakeModel& TheModel() {
  static const FakeModel model;
  return model;
}

const TensorMap& FakeMap() {
  static const SchemaNames names(TheModel().manifest().schema);
  static const TensorMap map(&TheModel().manifest().schema, &names, &TheModel().manifest().limits);
  return map;
}

// Tensors that own what they are made of.
class Tensors {
 public:
  template <class T>
  Tensors& Add(const char* name, std::string_view datatype, const std::vector<T>& values,
               std::vector<int64_t> shape = {}) {
    if (shape.empty()) shape = {static_cast<int64_t>(values.size())};
    return AddBuffers(name, datatype,
                      {{reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)}},
                      std::move(shape));
  }
  Tensors& AddBuffers(const char* name, std::string_view datatype, std::vector<std::string> buffers,
                      std::vector<int64_t> shape) {
    auto kept = std::make_unique<Kept>(Kept{name, std::move(buffers), std::move(shape), {}});
    for (const std::string& buffer : kept->buffers) kept->views.push_back(buffer);
    views_.push_back({kept->name, datatype, kept->shape, kept->views});
    kept_.push_back(std::move(kept));
    return *this;
  }

  Status Parse(Request* request, std::optional<int64_t> num_examples = {},
               std::vector<std::string_view> outputs = {}) const {
    Status status = FakeMap().Parse(
        {.inputs = views_, .outputs = outputs, .num_examples = num_examples, .priority = priority},
        request);
    if (!status.ok()) return status;
    return CheckRequest(TheModel(), TheModel().manifest().limits, request);
  }
  std::span<const InputTensor> views() const { return views_; }
  std::string Refusal(std::optional<int64_t> num_examples = {}) const {
    Request request;
    const Status status = Parse(&request, num_examples);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  }

  int64_t priority = 0;

 private:
  struct Kept {
    std::string name;
    std::vector<std::string> buffers;
    std::vector<int64_t> shape;
    std::vector<std::string_view> views;
  };
  std::vector<std::unique_ptr<Kept>> kept_;
  std::vector<InputTensor> views_;
};

using Floats = std::vector<float>;
using Ints = std::vector<int32_t>;
using Ids = std::vector<int64_t>;

// GoodInputs(), input by input.
Tensors ByFeature() {
  Tensors tensors;
  tensors.Add("age", kFp32, Floats{30})
      .Add("price", kFp32, Floats{1.5, 2.5})
      .Add("user.values", kInt64, Ids{7})
      .Add("user.lengths", kInt32, Ints{1})
      .Add("item.values", kInt64, Ids{101, 205})
      .Add("item.lengths", kInt32, Ints{1, 1})
      .Add("history.values", kInt64, Ids{3, 9})
      .Add("history.lengths", kInt32, Ints{2})
      .Add("genre.values", kInt64, Ids{4, 1000})
      .Add("genre.lengths", kInt32, Ints{2, 0})
      .Add("genre.weights", kFp32, Floats{0.5, 2});
  return tensors;
}

// The same, packed.
Tensors Packed() {
  Tensors tensors;
  const SampleRequest sample = GoodSample();
  tensors.Add("DENSE", kFp32, sample.example_dense, {2, 2})
      .Add("REQUEST_DENSE", kFp32, sample.request_dense)
      .Add("LENGTHS", kInt32, sample.lengths)
      .Add("VALUES", kInt64, sample.values)
      .Add("WEIGHTS", kFp32, sample.weights);
  return tensors;
}

template <class T>
std::vector<T> ValuesOf(Unaligned<T> view) {
  std::vector<T> values(view.size());
  view.CopyTo(values.data());
  return values;
}

void ExpectGood(const Tensors& tensors, std::optional<int64_t> num_examples = {}) {
  Request request;
  const Status status = tensors.Parse(&request, num_examples);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(request.num_examples, 2U);
  EXPECT_EQ(request.dense[0].values[0], 30);
  EXPECT_EQ(request.dense[1].values[request.dense[1].stride], 2.5F);
  EXPECT_EQ(ValuesOf(request.sparse[0].values), Ids{7});
  EXPECT_EQ(ValuesOf(request.sparse[1].values), (Ids{101, 205}));
  EXPECT_EQ(ValuesOf(request.sparse[2].values), (Ids{3, 9}));
  EXPECT_EQ(ValuesOf(request.sparse[3].lengths), (Ints{2, 0}));
  EXPECT_EQ(ValuesOf(request.sparse[3].weights), (Floats{0.5, 2}));
  EXPECT_EQ(request.outputs_wanted, (std::vector<size_t>{0, 1}));
}

TEST(TensorMap, ReadsInputsByTheirNames) { ExpectGood(ByFeature()); }

TEST(TensorMap, ReadsPackedInputs) { ExpectGood(Packed()); }

TEST(TensorMap, TakesOneKindPackedAndTheOtherByName) {
  const SampleRequest sample = GoodSample();
  Tensors tensors;
  tensors.Add("LENGTHS", kInt32, sample.lengths)
      .Add("VALUES", kInt64, sample.values)
      .Add("WEIGHTS", kFp32, sample.weights)
      .Add("REQUEST_DENSE", kFp32, Floats{30})
      .Add("price", kFp32, Floats{1.5, 2.5});
  ExpectGood(tensors);
}

TEST(TensorMap, TakesDimensionsOfOneAroundARowAndBeforeAMatrix) {
  Tensors tensors;
  const SampleRequest sample = GoodSample();
  tensors.Add("DENSE", kFp32, sample.example_dense, {1, 2, 2})
      .Add("REQUEST_DENSE", kFp32, sample.request_dense, {1, 1})
      .Add("LENGTHS", kInt32, sample.lengths, {1, 8})
      .Add("VALUES", kInt64, sample.values, {7, 1})
      .Add("WEIGHTS", kFp32, sample.weights);
  ExpectGood(tensors);
}

TEST(TensorMap, JoinsATensorOfSeveralBuffersAndKeepsIt) {
  const SampleRequest sample = GoodSample();
  const std::string values(reinterpret_cast<const char*>(sample.values.data()), 56);
  Tensors tensors;
  tensors.Add("DENSE", kFp32, sample.example_dense, {2, 2})
      .Add("REQUEST_DENSE", kFp32, sample.request_dense)
      .Add("LENGTHS", kInt32, sample.lengths)
      .AddBuffers("VALUES", kInt64, {values.substr(0, 3), values.substr(3, 30), values.substr(33)},
                  {7})
      .Add("WEIGHTS", kFp32, sample.weights);
  ExpectGood(tensors);

  Request request;
  const auto before = std::make_shared<int>(1);
  request.bytes = before;
  ASSERT_TRUE(tensors.Parse(&request).ok());
  EXPECT_EQ(before.use_count(), 2);  // The request still holds it.
  request.bytes = nullptr;
  EXPECT_EQ(before.use_count(), 1);
}

TEST(TensorMap, CountsTheExamplesOfWhateverInputHasThem) {
  const auto count = [](const Tensors& tensors, std::optional<int64_t> stated = {}) {
    Request request;
    EXPECT_TRUE(tensors.Parse(&request, stated, {"profile"}).ok());
    return request.num_examples;
  };
  const auto with_age = [] { return std::move(Tensors().Add("age", kFp32, Floats{1})); };
  EXPECT_EQ(count(with_age()), 0U);
  EXPECT_EQ(count(with_age().Add("price", kFp32, Floats{1, 2, 3})), 3U);
  EXPECT_EQ(count(with_age().Add("DENSE", kFp32, Floats{1, 2, 3, 4}, {2, 2})), 2U);
}

TEST(TensorMap, CountsTheExamplesOfLengths) {
  // Lists alone give the number of examples, so the error for price names it.
  EXPECT_EQ(
      Tensors().Add("age", kFp32, Floats{1}).Add("item.lengths", kInt32, Ints{0, 0, 0}).Refusal(),
      "feature 'price': missing: expected 3 values, got none (it has no default)");
  EXPECT_EQ(Tensors()
                .Add("age", kFp32, Floats{1})
                .Add("LENGTHS", kInt32, Ints{0, 0, 0, 0, 0, 0, 0, 0})
                .Add("VALUES", kInt64, Ids{}, {0})
                .Refusal(),
            "feature 'price': missing: expected 2 values, got none (it has no default)");
}

TEST(TensorMap, ANumberOfExamplesThatIsStatedHoldsForAllInputs) {
  ExpectGood(ByFeature(), 2);
  EXPECT_EQ(ByFeature().Refusal(3), "feature 'price': expected 3 values, got 2");
  EXPECT_EQ(ByFeature().Refusal(-1), "num_examples: expected 1..8, got -1");
  EXPECT_EQ(ByFeature().Refusal(int64_t{1} << 32), "num_examples: expected 1..8, got 4294967296");
  EXPECT_EQ(ByFeature().Refusal(9), "num_examples: expected 1..8, got 9");
}

TEST(TensorMap, NamesMissingLengthsRatherThanNoExamples) {
  EXPECT_EQ(Tensors().Add("item.values", kInt64, Ids{101}).Refusal(),
            "tensor 'item.lengths': expected together with 'item.values', got none");
  EXPECT_EQ(Tensors().Add("item.values", kInt64, Ids{}, {0}).Refusal(),
            "num_examples: expected 1..8, got 0; without examples, name only outputs in request "
            "scope: 'profile'");
}

TEST(TensorMap, ReadsPriorities) {
  Tensors tensors = ByFeature();
  tensors.priority = 2;
  Request request;
  ASSERT_TRUE(tensors.Parse(&request).ok());
  EXPECT_EQ(request.priority, Priority::kBackground);
  tensors.priority = 3;
  EXPECT_EQ(tensors.Refusal(), "priority: expected 0..2, got 3");
}

TEST(TensorMap, GivesTheOutputsThatAreWanted) {
  Request request;
  ASSERT_TRUE(ByFeature().Parse(&request, {}, {"profile"}).ok());
  EXPECT_EQ(request.outputs_wanted, std::vector<size_t>{1});
  const Status status = ByFeature().Parse(&request, {}, {"scores"});
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "output 'scores' is not there, expected one of 'score', 'profile'");
}

TEST(TensorMap, AnswersWithShapesThatBeginWithTheRows) {
  const ResponseOutput scores = {.output = 0, .values = {1, 2, 3}};
  const OutputTensor of_examples = FakeMap().Answer(scores, 3, /*is_batch_of_one=*/false);
  EXPECT_EQ(of_examples.name, "score");
  EXPECT_EQ(of_examples.shape, std::vector<int64_t>{3});
  EXPECT_EQ(of_examples.bytes.size(), 12U);
  const ResponseOutput profile = {.output = 1, .values = {1, 2}};
  EXPECT_EQ(FakeMap().Answer(profile, 3, false).shape, (std::vector<int64_t>{1, 2}));
}

TEST(TensorMap, AnswersABatchOfOneWithTheDimensionThatItCameWith) {
  const ResponseOutput scores = {.output = 0, .values = {1, 2, 3}};
  EXPECT_EQ(FakeMap().Answer(scores, 3, true).shape, (std::vector<int64_t>{1, 3}));
  const ResponseOutput profile = {.output = 1, .values = {1, 2}};
  EXPECT_EQ(FakeMap().Answer(profile, 3, true).shape, (std::vector<int64_t>{1, 1, 2}));
}

TEST(TensorMap, ABatchOfOneHasADimensionOfOneBeforeEachTensor) {
  const auto is_batch = [](const Tensors& tensors) {
    return FakeMap().IsBatchOfOne(tensors.views());
  };
  const auto tensors = [] {
    Tensors made;
    made.Add("DENSE", kFp32, Floats{1, 2, 3, 4}, {1, 2, 2}).Add("VALUES", kInt64, Ids{1}, {1, 1});
    return made;
  };
  EXPECT_TRUE(is_batch(tensors()));
  EXPECT_TRUE(is_batch(tensors().Add("item.lengths", kInt32, Ints{1, 2}, {1, 2})));
  EXPECT_FALSE(is_batch(Tensors()));
  EXPECT_FALSE(is_batch(tensors().Add("age", kFp32, Floats{1})));
  EXPECT_FALSE(is_batch(tensors().Add("item.lengths", kInt32, Ints{1, 2}, {2, 1})));
  EXPECT_FALSE(is_batch(tensors().Add("item.lengths", kInt32, Ints{1, 2}, {1, 1, 2})));
  EXPECT_FALSE(is_batch(tensors().Add("prize", kFp32, Floats{1}, {1, 1})));
  EXPECT_FALSE(is_batch(ByFeature()));
}

TEST(TensorMap, CountsWhatTensorsHoldByTheirShapes) {
  const auto size_of = [](const Tensors& tensors, std::optional<int64_t> stated = {}) {
    const BatchSize size = FakeMap().SizeOf(tensors.views(), stated);
    EXPECT_EQ(size.requests, 1U);
    return std::pair(size.examples, size.ids);
  };
  EXPECT_EQ(size_of(ByFeature()), std::pair(2UL, 7UL));
  EXPECT_EQ(size_of(Packed()), std::pair(2UL, 7UL));
  EXPECT_EQ(size_of(ByFeature(), 5), std::pair(5UL, 7UL));
  EXPECT_EQ(size_of(ByFeature(), -5), std::pair(0UL, 7UL));
  EXPECT_EQ(size_of(Tensors().AddBuffers("VALUES", kInt64, {}, {1, 1000})), std::pair(0UL, 1000UL));
  EXPECT_EQ(size_of(Tensors().AddBuffers("VALUES", kInt64, {}, {-1, 3})), std::pair(0UL, 0UL));
  EXPECT_EQ(size_of(Tensors().AddBuffers("prize", kInt64, {}, {3})), std::pair(0UL, 0UL));
}

struct Bad {
  const char* name;
  void (*spoil)(Tensors*);
  const char* words;
};

class TensorMapRefuses : public ::testing::TestWithParam<Bad> {};

TEST_P(TensorMapRefuses, WithWordsThatSayWhatAndWhere) {
  Tensors tensors = ByFeature();
  GetParam().spoil(&tensors);
  EXPECT_EQ(tensors.Refusal(), GetParam().words);
}

const Bad kBad[] = {
    {"UnknownTensor", [](Tensors* t) { t->Add("prize", kFp32, Floats{1}); },
     "tensor 'prize': not an input of the model, expected one of 'age', 'price', 'discount', "
     "'user.values', 'user.lengths', 'item.values', 'item.lengths', 'history.values', "
     "'history.lengths', 'genre.values', 'genre.lengths', 'genre.weights', 'tag.values', "
     "'tag.lengths', 'DENSE', 'REQUEST_DENSE', 'LENGTHS', 'VALUES', 'WEIGHTS'"},
    {"UnknownPartOfASparseInput", [](Tensors* t) { t->Add("genre.value", kInt64, Ids{1}); },
     "tensor 'genre.value': not an input of the model, expected one of 'genre.values', "
     "'genre.lengths', 'genre.weights'"},
    {"SparseInputWithoutAPart", [](Tensors* t) { t->Add("tag", kInt64, Ids{1}); },
     "tensor 'tag': not an input of the model, expected one of 'tag.values', 'tag.lengths'"},
    {"ValuesWithoutLengths", [](Tensors* t) { t->Add("tag.values", kInt64, Ids{1}); },
     "tensor 'tag.lengths': expected together with 'tag.values', got none"},
    {"UnknownSparseTensor", [](Tensors* t) { t->Add("itm.values", kInt64, Ids{1}); },
     "feature 'itm': not a sparse input of the model, expected one of 'user', 'item', 'history', "
     "'genre', 'tag'"},
    {"Twice", [](Tensors* t) { t->Add("item.values", kInt64, Ids{1}); },
     "feature 'item': given twice, expected once"},
    {"PackedAndByName", [](Tensors* t) { t->Add("DENSE", kFp32, Floats{1, 2, 3, 4}, {2, 2}); },
     "feature 'price': given twice, expected once"},
    {"PackedListsAndByName", [](Tensors* t) { t->Add("LENGTHS", kInt32, Ints{1}); },
     "feature 'user': given twice, expected once"},
    {"AnotherType", [](Tensors* t) { t->Add("tag.values", kInt32, Ints{1}); },
     "tensor 'tag.values': expected datatype INT64, got 'INT32'"},
    {"NegativeSize", [](Tensors* t) { t->Add("tag.values", kInt64, Ids{1}, {-1, -1}); },
     "tensor 'tag.values': expected sizes of at least 0, got [-1, -1]"},
    {"SizesThatOverflow",
     [](Tensors* t) { t->Add("tag.values", kInt64, Ids{1}, {int64_t{1} << 62, int64_t{1} << 62}); },
     "tensor 'tag.values': expected fewer than 2^60 values, got shape [4611686018427387904, "
     "4611686018427387904]"},
    {"TwoDimensions", [](Tensors* t) { t->Add("tag.values", kInt64, Ids{1, 2, 3, 4}, {2, 2}); },
     "tensor 'tag.values': expected shape [-1], got [2, 2]"},
    {"NoDimension", [](Tensors* t) { t->AddBuffers("tag.values", kInt64, {"01234567"}, {}); },
     "tensor 'tag.values': expected shape [-1], got []"},
    {"AnotherNumberOfColumns", [](Tensors* t) { t->Add("DENSE", kFp32, Floats{1, 2, 3}, {1, 3}); },
     "tensor 'DENSE': expected shape [-1, 2], got [1, 3]"},
    {"BytesThatAreCutOff",
     [](Tensors* t) { t->AddBuffers("tag.values", kInt64, {"0123456"}, {1}); },
     "tensor 'tag.values': expected 8 bytes for INT64 [1], got 7"},
    {"WeightsOfAnInputWithout", [](Tensors* t) { t->Add("item.weights", kFp32, Floats{1, 1}); },
     "feature 'item': is not weighted: expected no weights, got 2"},
};

INSTANTIATE_TEST_SUITE_P(All, TensorMapRefuses, testing::ValuesIn(kBad),
                         [](const auto& info) { return info.param.name; });

TEST(TensorMap, RefusesPackedTensorsThatDoNotAgree) {
  const SampleRequest sample = GoodSample();
  const auto dense = [&] {
    Tensors tensors;
    tensors.Add("DENSE", kFp32, sample.example_dense, {2, 2})
        .Add("REQUEST_DENSE", kFp32, sample.request_dense);
    return tensors;
  };
  EXPECT_EQ(dense().Add("VALUES", kInt64, sample.values).Refusal(),
            "tensor 'LENGTHS': expected together with 'VALUES', got none");
  EXPECT_EQ(dense()
                .Add("LENGTHS", kInt32, sample.lengths)
                .Add("VALUES", kInt64, Ids{1, 2})
                .Add("WEIGHTS", kFp32, sample.weights)
                .Refusal(),
            "tensor 'VALUES': expected 7 (the sum of the lengths), got 2");
  EXPECT_EQ(
      dense().Add("LENGTHS", kInt32, sample.lengths).Add("VALUES", kInt64, sample.values).Refusal(),
      "tensor 'WEIGHTS': expected 2 (one for each value of the weighted inputs), got 0");
}

TEST(TensorSpecs, ListInputsByNameThenPacked) {
  std::vector<std::string> names;
  for (const TensorSpec& spec : InputSpecs(FakeManifest().schema)) names.push_back(spec.name);
  const std::vector<std::string> expected = {
      "age",           "price",         "discount",       "user.values",     "user.lengths",
      "item.values",   "item.lengths",  "history.values", "history.lengths", "genre.values",
      "genre.lengths", "genre.weights", "tag.values",     "tag.lengths",     "DENSE",
      "REQUEST_DENSE", "LENGTHS",       "VALUES",         "WEIGHTS"};
  EXPECT_EQ(names, expected);
}

TEST(TensorSpecs, SayTypesAndShapes) {
  const std::vector<TensorSpec> specs = InputSpecs(FakeManifest().schema);
  EXPECT_EQ(specs[0].shape, std::vector<int64_t>{1});   // age
  EXPECT_EQ(specs[1].shape, std::vector<int64_t>{-1});  // price
  EXPECT_EQ(specs[3].datatype, kInt64);
  EXPECT_EQ(specs[4].shape, std::vector<int64_t>{1});  // user.lengths
  EXPECT_EQ(specs[14].shape, (std::vector<int64_t>{-1, 2}));
  const std::vector<TensorSpec> outputs = OutputSpecs(FakeManifest().schema);
  EXPECT_EQ(outputs[0].shape, std::vector<int64_t>{-1});
  EXPECT_EQ(outputs[1].shape, (std::vector<int64_t>{1, 2}));
}

TEST(TensorSpecs, AnInputKeepsItsNameFromWhatWouldPackIt) {
  Schema schema = FakeManifest().schema;
  schema.dense[0].name = "DENSE";  // In request scope: one value.
  for (const TensorSpec& spec : InputSpecs(schema)) {
    if (spec.name == "DENSE") {
      EXPECT_EQ(spec.shape, std::vector<int64_t>{1});
    }
  }
  const Limits limits = FakeManifest().limits;
  const SchemaNames names(schema);
  const TensorMap map(&schema, &names, &limits);
  const Floats value = {30};
  const std::string_view bytes(reinterpret_cast<const char*>(value.data()), 4);
  const std::vector<int64_t> shape = {1};
  const InputTensor tensor = {"DENSE", kFp32, shape, {&bytes, 1}};
  const std::string_view wanted = "profile";
  Request request;
  ASSERT_TRUE(map.Parse({.inputs = {&tensor, 1}, .outputs = {&wanted, 1}}, &request).ok());
  EXPECT_EQ(request.dense[0].values[0], 30);
}

}  // namespace
}  // namespace embershard
