// Table-wise, row-wise, column-wise and replicated, over 1, 2 and 4 CPU devices; sum and mean;
// weighted or not: every pooled vector within 1e-6, relative, of the unsharded one.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "lookup/lookup_fixture.h"

namespace embershard {
namespace {

using nlohmann::json;
using testing::Bags;
using testing::MakeTable;
using testing::OpenLookup;
using testing::PackageBuilder;
using testing::Pooled;
using testing::RandomBags;
using testing::TestTable;

constexpr double kTolerance = 1e-6;

// Of each way to store rows, of dims that 4 devices share evenly and unevenly, and of dims that are
// no multiple of 4.
std::vector<TestTable> Tables() {
  return {MakeTable("bytes", WeightType::kInt8, 90, 16, 1),
          MakeTable("bytes_wide", WeightType::kInt8, 71, 20, 2),
          MakeTable("nibbles", WeightType::kInt4, 70, 36, 3),
          MakeTable("nibbles_wide", WeightType::kInt4, 33, 64, 4),
          MakeTable("halves", WeightType::kFp16, 50, 16, 5),
          MakeTable("halves_wide", WeightType::kFp16, 4, 28, 6),
          MakeTable("singles", WeightType::kFp32, 60, 16, 7),
          MakeTable("singles_of_10", WeightType::kFp32, 60, 10, 8),
          MakeTable("bytes_of_1", WeightType::kInt8, 40, 1, 9),
          MakeTable("nibbles_of_7", WeightType::kInt4, 40, 7, 10)};
}

json Shard(const TestTable& table, std::array<int64_t, 2> rows, std::array<int64_t, 2> columns,
           const std::vector<int64_t>& devices) {
  return {{"table", table.name}, {"rows", rows}, {"columns", columns}, {"devices", devices}};
}

json ShardsOf(const std::string& strategy, int64_t devices) {
  json shards = json::array();
  const std::vector<TestTable> tables = Tables();
  for (size_t i = 0; i < tables.size(); ++i) {
    const TestTable& table = tables[i];
    const std::array<int64_t, 2> rows = {0, table.rows}, columns = {0, table.dim};
    std::vector<int64_t> all;
    for (int64_t device = 0; device < devices; ++device) {
      all.push_back(device);
      const auto part = [&](int64_t size) -> std::array<int64_t, 2> {
        return {size * device / devices, size * (device + 1) / devices};
      };
      if (strategy == "row") shards.push_back(Shard(table, part(table.rows), columns, {device}));
      if (strategy == "column") {
        const auto [begin, end] = part((table.dim + 3) / 4);
        const int64_t end_column = std::min(4 * end, table.dim);
        if (begin < end) shards.push_back(Shard(table, rows, {4 * begin, end_column}, {device}));
      }
    }
    if (strategy == "replicate") shards.push_back(Shard(table, rows, columns, all));
    if (strategy == "table") {
      shards.push_back(Shard(table, rows, columns, {static_cast<int64_t>(i) % devices}));
    }
  }
  return shards;
}

PackageBuilder BuilderOf(Pooling pooling, bool weighted) {
  PackageBuilder builder;
  for (const TestTable& table : Tables()) builder.AddTable(table);
  for (const TestTable& table : Tables()) {
    for (const auto& [scope, name] :
         {std::pair(Scope::kRequest, "request"), std::pair(Scope::kExample, "example")}) {
      builder.AddSparse(table.name + " of a " + name, scope, weighted, {{table.name, pooling}});
    }
  }
  builder.AddOutput("score", Scope::kExample, {});
  return builder;
}

// Compares the vectors of every lookup, each by the length of its difference.
void ExpectSameVectors(const Package& package, Scope scope, const std::vector<float>& got,
                       const std::vector<float>& whole) {
  const Schema& schema = package.schema();
  const size_t columns =
      scope == Scope::kRequest ? schema.request_pooled_columns : schema.example_pooled_columns;
  ASSERT_EQ(got.size(), whole.size());
  for (size_t bag = 0; bag < whole.size() / columns; ++bag) {
    for (const SparseInput& input : schema.sparse) {
      if (input.scope != scope) continue;
      const LookupSpec& lookup = input.lookups.front();
      const auto dim = static_cast<size_t>(package.manifest().tables[lookup.table].dim);
      double size = 0;
      double difference = 0;
      for (size_t i = bag * columns + lookup.column; i < bag * columns + lookup.column + dim; ++i) {
        size += static_cast<double>(whole[i]) * whole[i];
        difference += std::pow(static_cast<double>(got[i]) - whole[i], 2);
      }
      ASSERT_LE(std::sqrt(difference), kTolerance * std::sqrt(size))
          << input.name << ", bag " << bag;
    }
  }
}

using Cell = std::tuple<const char*, int64_t, Pooling, bool>;

class PlanGrid : public ::testing::TestWithParam<Cell> {};

TEST_P(PlanGrid, GivesTheVectorsOfUnshardedTables) {
  const auto& [strategy, devices, pooling, weighted] = GetParam();
  const OpenLookup whole(BuilderOf(pooling, weighted));
  PackageBuilder builder = BuilderOf(pooling, weighted);
  std::vector<std::string> names;
  for (int64_t i = 0; i < devices; ++i) names.push_back("cpu:" + std::to_string(i));
  builder.AddPlanOfShards("cut", names, ShardsOf(strategy, devices));
  const OpenLookup sharded(builder, {}, {.threads = static_cast<int>(devices), .alone_bytes = 0});
  ASSERT_TRUE(sharded.made().ok()) << sharded.made().status().message();
  std::mt19937 random(11);
  for (const auto& [requests, examples, longest] :
       {std::tuple(1, 1, 1), std::tuple(3, 40, 5), std::tuple(20, 100, 50)}) {
    const Bags bags =
        RandomBags(whole.package().schema(), static_cast<size_t>(requests),
                   static_cast<size_t>(examples), static_cast<size_t>(longest), &random);
    const Pooled expected = whole.Run(bags);
    const Pooled got = sharded.Run(bags);
    ExpectSameVectors(whole.package(), Scope::kRequest, got.request, expected.request);
    ExpectSameVectors(whole.package(), Scope::kExample, got.example, expected.example);
  }
}

std::string NameOf(const ::testing::TestParamInfo<Cell>& info) {
  const auto& [strategy, devices, pooling, weighted] = info.param;
  return std::string(strategy) + "_on_" + std::to_string(devices) +
         (pooling == Pooling::kSum ? "_sum" : "_mean") + (weighted ? "_weighted" : "_plain");
}

INSTANTIATE_TEST_SUITE_P(
    Plans, PlanGrid,
    ::testing::Combine(::testing::Values("table", "row", "column", "replicate"),
                       ::testing::Values(1, 2, 4), ::testing::Values(Pooling::kSum, Pooling::kMean),
                       ::testing::Bool()),
    NameOf);

}  // namespace
}  // namespace embershard
