// The backend and the server look up the same values, bit for bit. The backend merges ragged
// requests over real tables; the server runs them one by one.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "lookup/sharded_lookup.h"
#include "package/package.h"
#include "testing/package_builder.h"
#include "testing/scratch_folder.h"
#include "testing/test_table.h"
#include "triton/backend_fixture.h"

namespace embershard::triton {
namespace {

using testing::MakeTable;
using testing::PackageBuilder;
using testing::ScratchFolder;

constexpr int64_t kUsers = 100;
constexpr int64_t kItems = 300;
constexpr int64_t kTags = 50;

// A package and its lookup; the outputs are the pooled vectors.
class PooledModel final : public Model {
 public:
  explicit PooledModel(std::shared_ptr<const Package> package)
      : package_(std::move(package)),
        lookup_(std::move(*ShardedLookup::Make(*package_, {.threads = 2}))) {}

  const Manifest& manifest() const override { return package_->manifest(); }
  const IdMap& id_map(size_t sparse_input) const override { return package_->id_map(sparse_input); }
  const std::vector<SampleRequest>& samples() const override { return package_->samples(); }

  Status Run(Slot& slot) override {
    const Schema& schema = package_->schema();
    slot.outputs.resize(2);
    slot.outputs[0].resize(slot.requests * schema.request_pooled_columns);
    slot.outputs[1].resize(slot.examples * schema.example_pooled_columns);
    std::vector<JaggedRows> rows;
    for (const SlotSparse& input : slot.sparse) {
      rows.push_back({.rows = input.rows.data(),
                      .offsets = input.offsets.data(),
                      .weights = input.weights.data()});
    }
    return lookup_->Run(rows, {.request = {.values = slot.outputs[0].data(),
                                           .bags = slot.requests,
                                           .columns = schema.request_pooled_columns},
                               .example = {.values = slot.outputs[1].data(),
                                           .bags = slot.examples,
                                           .columns = schema.example_pooled_columns}});
  }

 private:
  const std::shared_ptr<const Package> package_;
  const std::unique_ptr<ShardedLookup> lookup_;
};

// Draws `lists` lists of up to `longest` ids.
FakeLists DrawLists(size_t lists, int64_t rows, int longest, bool weighted, std::mt19937* random) {
  FakeLists drawn;
  for (size_t list = 0; list < lists; ++list) {
    const auto length = static_cast<int32_t>((*random)() % static_cast<uint32_t>(longest + 1));
    drawn.lengths.push_back(length);
    for (int32_t i = 0; i < length; ++i) {
      drawn.values.push_back(static_cast<int64_t>((*random)() % static_cast<uint64_t>(rows)));
      if (weighted) drawn.weights.push_back(static_cast<float>((*random)() % 1000) / 333);
    }
  }
  return drawn;
}

FakeInputs DrawInputs(uint32_t examples, std::mt19937* random) {
  return {
      .num_examples = examples,
      .dense = {},
      .sparse = {DrawLists(1, kUsers, 1, false, random), DrawLists(1, kItems, 40, false, random),
                 DrawLists(examples, kItems, 2, false, random),
                 DrawLists(examples, kTags, 6, true, random)},
      .outputs_wanted = {0, 1}};
}

class PooledTest : public BackendTest, public ::testing::WithParamInterface<const char*> {
 protected:
  PooledTest() {
    PackageBuilder builder;
    builder.AddTable(MakeTable("users", WeightType::kInt8, kUsers, 8, 1));
    builder.AddTable(MakeTable("items", WeightType::kInt4, kItems, 16, 2));
    builder.AddTable(MakeTable("tags", WeightType::kFp16, kTags, 12, 3));
    builder.AddSparse("user", Scope::kRequest, false, {{.table = "users"}});
    builder.AddSparse("history", Scope::kRequest, false,
                      {{.table = "items", .pooling = Pooling::kMean}});
    builder.AddSparse("item", Scope::kExample, false, {{.table = "items"}});
    builder.AddSparse("tag", Scope::kExample, true, {{.table = "tags"}});
    builder.AddOutput("of_request", Scope::kRequest, {24});
    builder.AddOutput("of_example", Scope::kExample, {28});
    builder.AddPlan("one", {"cpu:0"}, {0, 0, 0});
    builder.AddPlan("two", {"cpu:0", "cpu:1"}, {0, 1, 0});
    std::filesystem::create_directories(folder_.path() / "test" / "1");
    builder.Write(folder_.path() / "test" / "1");
    model_.name = "test";
    model_.version = 1;
    model_.folder = (folder_.path() / "test").string();
    open_ = [](const std::filesystem::path& folder,
               const ModelOptions& options) -> Result<std::unique_ptr<Model>> {
      return std::unique_ptr<Model>(
          std::make_unique<PooledModel>(OpenPackage(folder, options.package.plan)));
    };
  }

  static std::shared_ptr<const Package> OpenPackage(const std::filesystem::path& folder,
                                                    const std::string& plan) {
    auto package = Package::Open(folder, {.plan = plan});
    EXPECT_TRUE(package.ok()) << package.status().message();
    return std::move(*package);
  }

  // Asks the server's engine, one request at a time.
  std::vector<ResponseOutput> AskServer(const FakeInputs& inputs) {
    if (engine_ == nullptr) {
      auto model = std::make_unique<PooledModel>(OpenPackage(folder_.path() / "test" / "1", "one"));
      auto engine = Engine::Start(std::move(model), {});
      EXPECT_TRUE(engine.ok()) << engine.status().message();
      engine_ = std::move(*engine);
    }
    std::vector<std::unique_ptr<Request>> requests;
    requests.push_back(FakeRequest(inputs));
    std::vector<ResponseOutput> outputs;
    requests[0]->answer = [&outputs](Status status, Response response) {
      EXPECT_TRUE(status.ok()) << status.message();
      outputs = std::move(response.outputs);
    };
    engine_->PredictMerged(std::move(requests));
    return outputs;
  }

  const ScratchFolder folder_;
  std::unique_ptr<Engine> engine_;
};

void ExpectSameBits(const std::string& got, const std::vector<float>& expected) {
  ASSERT_EQ(got.size(), expected.size() * sizeof(float));
  EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size()), 0);
}

TEST_P(PooledTest, VectorsAreThoseOfTheServer) {
  Start(Parameter("plan", GetParam()) + "," + Parameter("max_batch_examples", "700"));
  const Schema schema =
      PooledModel(OpenPackage(folder_.path() / "test" / "1", "one")).manifest().schema;
  std::mt19937 random(7);
  std::vector<FakeInputs> drawn;
  std::vector<TRITONBACKEND_Request> requests;
  for (const uint32_t examples : {1U, 2U, 33U, 500U, 1U, 250U, 699U, 7U, 1500U, 64U}) {
    drawn.push_back(DrawInputs(examples, &random));
    requests.push_back(ToTritonRequest(drawn.back(), schema));
  }
  const std::vector<Fate> fates = Execute(requests);
  // Requests of 537, 250, 699, 71 and three times 500 examples.
  EXPECT_EQ(instance_.batches.size(), 7U);
  for (size_t i = 0; i < fates.size(); ++i) {
    ASSERT_FALSE(fates[i].failed) << fates[i].message;
    const std::vector<ResponseOutput> expected = AskServer(drawn[i]);
    ASSERT_EQ(expected.size(), 2U);
    ExpectSameBits(fates[i].outputs.at("of_request").bytes, expected[0].values);
    ExpectSameBits(fates[i].outputs.at("of_example").bytes, expected[1].values);
  }
}

TEST_P(PooledTest, VectorsAreTheRowsOfTheTables) {
  Start(Parameter("plan", GetParam()));
  TRITONBACKEND_Request request;
  request.outputs = {"of_request", "of_example"};
  AddInput(&request, "user.values", std::vector<int64_t>{42});
  AddInput(&request, "user.lengths", std::vector<int32_t>{1});
  AddInput(&request, "item.values", std::vector<int64_t>{7, 299});
  AddInput(&request, "item.lengths", std::vector<int32_t>{1, 1});
  const Fate fate = Execute(request);
  ASSERT_FALSE(fate.failed) << fate.message;
  const auto users = MakeTable("users", WeightType::kInt8, kUsers, 8, 1);
  const auto items = MakeTable("items", WeightType::kInt4, kItems, 16, 2);
  const std::vector<float> of_request = fate.outputs.at("of_request").floats();
  const std::vector<float> of_example = fate.outputs.at("of_example").floats();
  for (size_t column = 0; column < 24; ++column) {
    EXPECT_EQ(of_request[column], column < 8 ? static_cast<float>(users.row(42)[column]) : 0);
  }
  for (size_t column = 0; column < 28; ++column) {
    EXPECT_EQ(of_example[column], column < 16 ? static_cast<float>(items.row(7)[column]) : 0);
    EXPECT_EQ(of_example[28 + column],
              column < 16 ? static_cast<float>(items.row(299)[column]) : 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, PooledTest, ::testing::Values("one", "two"));

}  // namespace
}  // namespace embershard::triton
