// Counts what is allocated while a lookup runs, by every thread of the process.

#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "lookup/allocations.h"
#include "lookup/lookup_fixture.h"

namespace embershard {
namespace {

using testing::AllocationsSoFar;
using testing::MakeTable;
using testing::OpenLookup;
using testing::PackageBuilder;

// A batch whose lists lie ready, so that running it is all that happens.
struct Batch {
  std::vector<std::vector<int64_t>> rows;
  std::vector<std::vector<int64_t>> offsets;
  std::vector<std::vector<float>> weights;
  std::vector<JaggedRows> sparse;
  std::vector<float> pooled;
  std::vector<float> vectors;
};

Batch RandomBatch(const Schema& schema, size_t bags, size_t longest, std::mt19937* random) {
  Batch batch;
  const testing::Bags lists = testing::RandomBags(schema, 0, bags, longest, random);
  for (const auto& input : lists.inputs) {
    auto& rows = batch.rows.emplace_back();
    auto& offsets = batch.offsets.emplace_back(1, 0);
    auto& weights = batch.weights.emplace_back();
    for (const testing::Bag& bag : input) {
      rows.insert(rows.end(), bag.rows.begin(), bag.rows.end());
      weights.insert(weights.end(), bag.weights.begin(), bag.weights.end());
      offsets.push_back(static_cast<int64_t>(rows.size()));
    }
  }
  for (size_t i = 0; i < batch.rows.size(); ++i) {
    batch.sparse.push_back(
        {batch.rows[i].data(), batch.offsets[i].data(), batch.weights[i].data()});
  }
  batch.pooled.resize(bags * schema.example_pooled_columns);
  batch.vectors.resize(batch.rows.back().size() * 16);
  return batch;
}

TEST(LookupAllocation, TheCounterCounts) {
  const size_t before = AllocationsSoFar();
  const std::vector<int> one(1);
  EXPECT_EQ(AllocationsSoFar(), before + 1);
}

// Sums and a sequence; shards of rows, columns and replicas; zero rows; lists of every length
// up to 50.
TEST(LookupAllocation, ALookupAllocatesNothingOnceItHasSeenItsLargestBatch) {
  PackageBuilder builder;
  builder.AddTable(MakeTable("split", WeightType::kInt8, 90, 16, 1));
  builder.AddTable(MakeTable("copied", WeightType::kInt4, 90, 64, 2));
  builder.AddSparse("plain", Scope::kExample, false, {{"split"}, {"copied", Pooling::kMean}});
  builder.AddSparse("weighted", Scope::kExample, true, {{"split", Pooling::kMean}, {"copied"}});
  builder.AddSparse("history", Scope::kExample, false, {{"split", Pooling::kSum, true}});
  builder.AddOutput("score", Scope::kExample, {});
  const auto shard = [](const char* table, std::vector<int> rows, std::vector<int> columns,
                        std::vector<int> devices) -> nlohmann::json {
    return {{"table", table}, {"rows", rows}, {"columns", columns}, {"devices", devices}};
  };
  builder.AddPlanOfShards(
      "cut", {"cpu:0", "cpu:1"},
      {shard("split", {0, 40}, {0, 16}, {0}), shard("split", {40, 90}, {0, 8}, {1}),
       shard("split", {40, 90}, {8, 16}, {0}), shard("copied", {0, 90}, {0, 64}, {1, 0})});
  const OpenLookup open(builder, {}, {.threads = 4, .alone_bytes = 0});
  ASSERT_TRUE(open.made().ok());
  ShardedLookup& lookup = **open.made();
  const Schema& schema = open.package().schema();

  std::mt19937 random(5);
  std::vector<Batch> batches;
  for (const size_t bags : {1, 400, 7, 64}) {
    batches.push_back(RandomBatch(schema, bags, 50, &random));
  }
  const auto run = [&](Batch& batch, size_t bags) {
    const LookupMatrix sequence{batch.vectors.data(), batch.rows.back().size(), 16};
    return lookup
        .Run(batch.sparse, {.request = {},
                            .example = {batch.pooled.data(), bags, schema.example_pooled_columns},
                            .sequences = {&sequence, 1}})
        .ok();
  };
  ASSERT_TRUE(run(batches[1], 400));
  const size_t before = AllocationsSoFar();
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(run(batches[0], 1));
    ASSERT_TRUE(run(batches[1], 400));
    ASSERT_TRUE(run(batches[2], 7));
    ASSERT_TRUE(run(batches[3], 64));
  }
  EXPECT_EQ(AllocationsSoFar(), before);
}

}  // namespace
}  // namespace embershard
