// Counts what is allocated on the way of a batch from its requests to the dense program's input,
// and from the program's output to the answers, by every thread of the process.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "batching/builder.h"
#include "batching/request_validation.h"
#include "lookup/allocations.h"
#include "lookup/sharded_lookup.h"
#include "package/package.h"
#include "testing/package_builder.h"
#include "testing/scratch_folder.h"
#include "testing/test_table.h"

namespace embershard {
namespace {

using testing::AllocationsSoFar;
using testing::MakeTable;
using testing::PackageBuilder;

// Tables and lookups of a package, and an output for each example, without a dense program.
class Summing final : public Model {
 public:
  explicit Summing(PackageBuilder builder) {
    builder.Write(folder_.path());
    auto package = Package::Open(folder_.path(), {});
    EXPECT_TRUE(package.ok()) << package.status().message();
    package_ = std::move(*package);
    auto lookup = ShardedLookup::Make(*package_, {.threads = 2, .alone_bytes = 0});
    EXPECT_TRUE(lookup.ok()) << lookup.status().message();
    lookup_ = std::move(*lookup);
  }

  const Manifest& manifest() const override { return package_->manifest(); }
  const IdMap& id_map(size_t sparse_input) const override { return package_->id_map(sparse_input); }
  const std::vector<SampleRequest>& samples() const override { return package_->samples(); }

  Status Run(Slot& slot) override {
    const Schema& schema = package_->schema();
    slot.request_pooled.resize(slot.requests * schema.request_pooled_columns);
    slot.example_pooled.resize(slot.examples * schema.example_pooled_columns);
    sparse_.clear();
    for (const SlotSparse& input : slot.sparse) {
      sparse_.push_back({input.rows.data(), input.offsets.data(), input.weights.data()});
    }
    slot.outputs.resize(1);
    slot.outputs[0].assign(slot.examples, 0.5F);
    return lookup_->Run(
        sparse_,
        {.request = {slot.request_pooled.data(), slot.requests, schema.request_pooled_columns},
         .example = {slot.example_pooled.data(), slot.examples, schema.example_pooled_columns},
         .sequences = {}});
  }

 private:
  testing::ScratchFolder folder_;
  std::unique_ptr<Package> package_;
  std::unique_ptr<ShardedLookup> lookup_;
  std::vector<JaggedRows> sparse_;
};

// A request and the arrays that it views.
struct Asked {
  std::vector<float> age, price;
  std::vector<std::vector<int32_t>> lengths;
  std::vector<std::vector<int64_t>> values;
  std::vector<float> weights;
};

std::unique_ptr<Request> RandomRequest(uint32_t examples, std::mt19937* random, Asked* asked) {
  asked->age = {30};
  asked->price.assign(examples, 1.5F);
  auto request = std::make_unique<Request>();
  request->num_examples = examples;
  request->dense = {{ViewOf(asked->age), 1}, {ViewOf(asked->price), 1}};
  request->outputs_wanted = {0};
  for (const uint32_t lists : {1U, examples, examples}) {
    auto& lengths = asked->lengths.emplace_back();
    auto& values = asked->values.emplace_back();
    for (uint32_t list = 0; list < lists; ++list) {
      lengths.push_back(static_cast<int32_t>((*random)() % 30));
      for (int32_t i = 0; i < lengths.back(); ++i) {
        values.push_back(static_cast<int64_t>((*random)() % 90));
      }
    }
  }
  asked->weights.assign(asked->values.back().size(), 0.25F);
  for (size_t i = 0; i < asked->lengths.size(); ++i) {
    SparseView& view = request->sparse.emplace_back();
    view.lengths = ViewOf(asked->lengths[i]);
    view.values = ViewOf(asked->values[i]);
  }
  request->sparse.back().weights = ViewOf(asked->weights);
  return request;
}

PackageBuilder ThreeInputs() {
  PackageBuilder builder;
  builder.AddTable(MakeTable("users", WeightType::kInt8, 90, 16, 1));
  builder.AddTable(MakeTable("items", WeightType::kInt4, 90, 32, 2));
  builder.AddDense("age", Scope::kRequest);
  builder.AddDense("price", Scope::kExample);
  builder.AddSparse("user", Scope::kRequest, false, {{"users"}});
  builder.AddSparse("item", Scope::kExample, false, {{"items"}, {"users", Pooling::kMean}});
  builder.AddSparse("tags", Scope::kExample, true, {{"items"}});
  builder.AddOutput("score", Scope::kExample, {});
  builder.AddPlan("both", {"cpu:0", "cpu:1"}, {0, 1});
  return builder;
}

TEST(Allocation, ABatchIsBuiltAndLookedUpInTheMemoryOfALargerOneAndOnlyAnswersTakeMemory) {
  Summing model(ThreeInputs());
  std::mt19937 random(3);
  std::vector<std::vector<std::unique_ptr<Request>>> batches(3);
  std::vector<std::unique_ptr<Asked>> asked;
  const std::vector<std::vector<uint32_t>> sizes = {{200, 1, 30, 5, 7}, {1}, {3, 64}};
  for (size_t i = 0; i < sizes.size(); ++i) {
    for (const uint32_t examples : sizes[i]) {
      asked.push_back(std::make_unique<Asked>());
      batches[i].push_back(RandomRequest(examples, &random, asked.back().get()));
      const Status status = CheckRequest(model, model.manifest().limits, batches[i].back().get());
      ASSERT_TRUE(status.ok()) << status.message();
    }
  }
  Slot slot;
  std::vector<std::vector<UnknownIdCount>> unknown_ids;
  BuildBatch(model, batches[0], &slot, &unknown_ids);
  ASSERT_TRUE(model.Run(slot).ok());
  size_t before = AllocationsSoFar();
  for (int round = 0; round < 20; ++round) {
    for (const auto& batch : batches) {
      BuildBatch(model, batch, &slot, &unknown_ids);
      ASSERT_TRUE(model.Run(slot).ok());
    }
  }
  EXPECT_EQ(AllocationsSoFar(), before);

  before = AllocationsSoFar();
  const auto outputs = CutOutputs(model.manifest().schema, slot, *batches[2][1], 1, 3);
  EXPECT_EQ(AllocationsSoFar(), before + 2);  // The list of outputs, and the values of one.
  EXPECT_EQ(outputs[0].values, std::vector<float>(64, 0.5F));
}

}  // namespace
}  // namespace embershard
