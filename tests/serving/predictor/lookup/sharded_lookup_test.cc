#include "lookup/sharded_lookup.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <string>
#include <tuple>

#include "lookup/lookup_fixture.h"

namespace embershard {
namespace {

using testing::Bag;
using testing::Bags;
using testing::ExpectedOf;
using testing::ExpectNear;
using testing::ExpectSameBits;
using testing::MakeTable;
using testing::OpenLookup;
using testing::PackageBuilder;
using testing::Pooled;
using testing::RandomBags;
using testing::TestTable;

// Tables of every weight type, one shared by two inputs, one input with two tables,
// both scopes, both poolings, weighted and not. `users` has two chunks.
std::vector<TestTable> ManyTables() {
  return {MakeTable("users", WeightType::kInt8, 1500, 16, 1),
          MakeTable("items", WeightType::kInt4, 700, 20, 2),
          MakeTable("items_wide", WeightType::kFp16, 700, 12, 3),
          MakeTable("words", WeightType::kFp16, 300, 4, 4)};
}

PackageBuilder ManyKinds() {
  PackageBuilder builder;
  for (const TestTable& table : ManyTables()) builder.AddTable(table);
  builder.AddSparse("user", Scope::kRequest, false, {{"users"}});
  builder.AddSparse("history", Scope::kRequest, false, {{"items", Pooling::kMean}});
  builder.AddSparse("searches", Scope::kRequest, true, {{"words", Pooling::kMean}});
  builder.AddSparse("item", Scope::kExample, false, {{"items"}, {"items_wide", Pooling::kMean}});
  builder.AddSparse("tags", Scope::kExample, true, {{"words"}});
  builder.AddSparse("likers", Scope::kExample, false, {{"users", Pooling::kMean}});
  builder.AddSparse("likers_total", Scope::kExample, true, {{"users"}});
  builder.AddOutput("score", Scope::kExample, {});
  builder.AddPlan("one", {"cpu:0"}, {0, 0, 0, 0});
  builder.AddPlan("two", {"cpu:0", "cpu:1"}, {0, 1, 0, 1});
  builder.AddPlan("idle", {"cpu:0", "cpu:1", "cpu:2"}, {2, 2, 0, 0});
  return builder;
}

// Every part of a batch that was cut at `cuts`, put behind one another again.
Pooled RunInParts(const OpenLookup& lookup, const Bags& whole, const std::vector<size_t>& cuts) {
  Pooled all;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    Bags part{.requests = cuts[i + 1] - cuts[i], .examples = cuts[i + 1] - cuts[i], .inputs = {}};
    for (const std::vector<Bag>& input : whole.inputs) {
      part.inputs.emplace_back(input.begin() + static_cast<std::ptrdiff_t>(cuts[i]),
                               input.begin() + static_cast<std::ptrdiff_t>(cuts[i + 1]));
    }
    const Pooled pooled = lookup.Run(part);
    all.request.insert(all.request.end(), pooled.request.begin(), pooled.request.end());
    all.example.insert(all.example.end(), pooled.example.begin(), pooled.example.end());
  }
  return all;
}

TEST(ShardedLookup, PooledVectorsAreThoseOfTheTablesValues) {
  const OpenLookup lookup(ManyKinds());
  std::mt19937 random(11);
  for (const size_t longest : {0, 1, 3, 60}) {
    const Bags bags = RandomBags(lookup.package().schema(), 5, 37, longest, &random);
    const Pooled pooled = lookup.Run(bags);
    ExpectNear(pooled.request, ExpectedOf(lookup.package(), ManyTables(), bags, Scope::kRequest));
    ExpectNear(pooled.example, ExpectedOf(lookup.package(), ManyTables(), bags, Scope::kExample));
  }
}

TEST(ShardedLookup, AnySplitOfTheSameBagsGivesTheSameBitsAloneOrMerged) {
  std::mt19937 random(12);
  for (const char* plan : {"one", "two"}) {
    const OpenLookup lookup(ManyKinds(), {.plan = plan});
    constexpr size_t kBags = 64;
    const Bags bags = RandomBags(lookup.package().schema(), kBags, kBags, 20, &random);
    const Pooled merged = lookup.Run(bags);
    std::vector<size_t> alone(kBags + 1);
    std::iota(alone.begin(), alone.end(), 0);
    ExpectSameBits(RunInParts(lookup, bags, alone), merged);
    for (int trial = 0; trial < 20; ++trial) {
      std::vector<size_t> cuts = {0};
      for (size_t bag = 1; bag < kBags; ++bag) {
        if (random() % 6 == 0) cuts.push_back(bag);
      }
      cuts.push_back(kBags);
      ExpectSameBits(RunInParts(lookup, bags, cuts), merged);
    }
  }
}

TEST(ShardedLookup, EveryPlanGivesTheSameBits) {
  const OpenLookup one(ManyKinds(), {.plan = "one"});
  std::mt19937 random(13);
  const Bags bags = RandomBags(one.package().schema(), 9, 100, 20, &random);
  const Pooled expected = one.Run(bags);
  for (const char* plan : {"two", "idle"}) {
    SCOPED_TRACE(plan);
    const OpenLookup other(ManyKinds(), {.plan = plan});
    ExpectSameBits(other.Run(bags), expected);
  }
}

TEST(ShardedLookup, MappedAndResidentTablesGiveTheSameBits) {
  const OpenLookup mapped(ManyKinds(), {.residency = TableResidency::kMmap, .plan = "two"});
  const OpenLookup resident(ManyKinds(), {.residency = TableResidency::kResident, .plan = "two"});
  std::mt19937 random(14);
  const Bags bags = RandomBags(mapped.package().schema(), 9, 100, 20, &random);
  ExpectSameBits(mapped.Run(bags), resident.Run(bags));
}

size_t ThreadsOfThisProcess() {
  const std::filesystem::directory_iterator threads("/proc/self/task");
  return static_cast<size_t>(std::distance(begin(threads), end(threads)));
}

TEST(ShardedLookup, ThreadsAreSharedOutAndTheCallersIsOneOfThem) {
  const size_t before = ThreadsOfThisProcess();
  for (const auto& [plan, threads, own] :
       {std::tuple("one", 1, 0U), std::tuple("one", 3, 2U), std::tuple("two", 1, 0U),
        std::tuple("two", 2, 1U), std::tuple("two", 5, 4U), std::tuple("idle", 4, 3U)}) {
    SCOPED_TRACE(plan);
    const OpenLookup lookup(ManyKinds(), {.plan = plan}, {.threads = threads});
    EXPECT_EQ(ThreadsOfThisProcess(), before + own) << threads;
  }
}

TEST(ShardedLookup, ABatchWithoutBagsIsFine) {
  const OpenLookup lookup(ManyKinds());
  std::mt19937 random(15);
  const Pooled pooled = lookup.Run(RandomBags(lookup.package().schema(), 0, 0, 5, &random));
  EXPECT_TRUE(pooled.request.empty());
  EXPECT_TRUE(pooled.example.empty());
}

// Weight type and dim of a table's rows.
struct Row {
  WeightType weights;
  int64_t dim;
};

class EveryWeightType : public ::testing::TestWithParam<Row> {
 protected:
  // One unweighted and one weighted input of both poolings over one table.
  EveryWeightType() : table_(MakeTable("table", GetParam().weights, 40, GetParam().dim, 5)) {}

  PackageBuilder Builder() const {
    PackageBuilder builder;
    builder.AddTable(table_);
    builder.AddSparse("plain", Scope::kExample, false, {{"table"}, {"table", Pooling::kMean}});
    builder.AddSparse("weighted", Scope::kExample, true, {{"table"}, {"table", Pooling::kMean}});
    builder.AddOutput("score", Scope::kExample, {});
    return builder;
  }

  // Value `d` of the pooled vectors: plain sum, plain mean, weighted sum, weighted mean.
  std::array<float, 4> At(const Pooled& pooled, size_t d) const {
    const auto dim = static_cast<size_t>(GetParam().dim);
    return {pooled.example[d], pooled.example[dim + d], pooled.example[2 * dim + d],
            pooled.example[3 * dim + d]};
  }

  const TestTable table_;
};

TEST_P(EveryWeightType, OneRowComesBackDequantized) {
  const OpenLookup lookup(Builder());
  for (const int64_t row : {0, 1, 39}) {
    const Bag plain{.rows = {row}, .weights = {}};
    const Bag weighted{.rows = {row}, .weights = {0.5F}};
    const Pooled pooled =
        lookup.Run({.requests = 0, .examples = 1, .inputs = {{plain}, {weighted}}});
    for (size_t d = 0; d < static_cast<size_t>(table_.dim); ++d) {
      // float(scale * code + bias) is exact: all three have few bits.
      const auto value = static_cast<float>(table_.row(row)[d]);
      EXPECT_EQ(At(pooled, d), (std::array{value, value, value / 2, value / 2}));
    }
  }
}

TEST_P(EveryWeightType, AnEmptyBagGivesZeros) {
  const OpenLookup lookup(Builder());
  const Pooled pooled = lookup.Run({.requests = 0, .examples = 1, .inputs = {{Bag{}}, {Bag{}}}});
  EXPECT_EQ(pooled.example, std::vector<float>(static_cast<size_t>(4 * table_.dim), 0.0F));
}

TEST_P(EveryWeightType, AZeroRowAddsNothingAndCountsInAMean) {
  const OpenLookup lookup(Builder());
  const Bag plain{.rows = {kZeroRow, 7, kZeroRow, kZeroRow}, .weights = {}};
  const Bag weighted{.rows = {kZeroRow, 7, kZeroRow, kZeroRow}, .weights = {9, 2, 9, 9}};
  const Pooled pooled = lookup.Run({.requests = 0, .examples = 1, .inputs = {{plain}, {weighted}}});
  for (size_t d = 0; d < static_cast<size_t>(table_.dim); ++d) {
    const auto value = static_cast<float>(table_.row(7)[d]);
    EXPECT_EQ(At(pooled, d), (std::array{value, value / 4, value * 2, value / 2}));
  }
}

TEST_P(EveryWeightType, ABagOfZeroRowsGivesZeros) {
  const OpenLookup lookup(Builder());
  const Bag plain{.rows = {kZeroRow, kZeroRow}, .weights = {}};
  const Bag weighted{.rows = {kZeroRow}, .weights = {3}};
  const Pooled pooled = lookup.Run({.requests = 0, .examples = 1, .inputs = {{plain}, {weighted}}});
  EXPECT_EQ(pooled.example, std::vector<float>(static_cast<size_t>(4 * table_.dim), 0.0F));
}

TEST_P(EveryWeightType, RandomBagsGiveTheTablesValuesAndTheSameBitsAlone) {
  const OpenLookup lookup(Builder());
  std::mt19937 random(16);
  const Bags bags = RandomBags(lookup.package().schema(), 0, 50, 70, &random);
  const Pooled merged = lookup.Run(bags);
  ExpectNear(merged.example, ExpectedOf(lookup.package(), {table_}, bags, Scope::kExample));
  std::vector<size_t> alone(51);
  std::iota(alone.begin(), alone.end(), 0);
  ExpectSameBits(RunInParts(lookup, bags, alone), merged);
}

std::string RowName(const ::testing::TestParamInfo<Row>& info) {
  constexpr std::array kNames = {"int8", "int4", "fp16", "fp32"};
  return std::string(kNames[static_cast<size_t>(info.param.weights)]) + "_dim_" +
         std::to_string(info.param.dim);
}

// Dims around the kernels' vectors of 8 and 16.
INSTANTIATE_TEST_SUITE_P(ShardedLookup, EveryWeightType,
                         ::testing::Values(Row{WeightType::kInt8, 4}, Row{WeightType::kInt8, 12},
                                           Row{WeightType::kInt8, 128}, Row{WeightType::kInt4, 4},
                                           Row{WeightType::kInt4, 12}, Row{WeightType::kInt4, 128},
                                           Row{WeightType::kFp16, 4}, Row{WeightType::kFp16, 12},
                                           Row{WeightType::kFp16, 128}, Row{WeightType::kFp32, 4},
                                           Row{WeightType::kFp32, 12}, Row{WeightType::kFp32, 100},
                                           Row{WeightType::kInt8, 1}, Row{WeightType::kInt4, 1},
                                           Row{WeightType::kInt4, 7}, Row{WeightType::kFp16, 2},
                                           Row{WeightType::kFp32, 10}),
                         RowName);

TEST(ShardedLookup, ARowBehindTheTableIsAnErrorAndTheNextBatchIsFine) {
  PackageBuilder builder;
  builder.AddTable(MakeTable("table", WeightType::kInt8, 40, 4, 5));
  builder.AddSparse("feature", Scope::kExample, false, {{"table"}});
  builder.AddOutput("score", Scope::kExample, {});
  const OpenLookup lookup(builder);
  for (const int64_t row : {40, -2}) {
    Pooled pooled;
    const Status status = lookup.TryRun(
        {.requests = 0, .examples = 1, .inputs = {{Bag{.rows = {3, row}, .weights = {}}}}},
        &pooled);
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_EQ(status.message(),
              "table 'table': expected a row in -1..39 for feature 'feature', got " +
                  std::to_string(row));
  }
  const Pooled pooled =
      lookup.Run({.requests = 0, .examples = 1, .inputs = {{Bag{.rows = {39}, .weights = {}}}}});
  EXPECT_EQ(pooled.example.size(), 4);
}

}  // namespace
}  // namespace embershard
