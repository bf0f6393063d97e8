// Sequences: the vector of every id, without pooling.

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lookup/lookup_fixture.h"

namespace embershard {
namespace {

using testing::Bag;
using testing::MakeTable;
using testing::OpenLookup;
using testing::PackageBuilder;
using testing::Pooled;
using testing::TestTable;

PackageBuilder WithSequence(const TestTable& table, Scope scope = Scope::kRequest) {
  PackageBuilder builder;
  builder.AddTable(table);
  builder.AddSparse("history", scope, false, {{table.name, Pooling::kSum, true}});
  builder.AddOutput("score", Scope::kExample, {});
  return builder;
}

struct Kind {
  const char* name;
  WeightType weights;
  int64_t dim;
};

void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

std::string KindName(const ::testing::TestParamInfo<Kind>& info) { return info.param.name; }

class SequenceOf : public ::testing::TestWithParam<Kind> {};

TEST_P(SequenceOf, GivesEachIdItsRowBitForBit) {
  const TestTable table = MakeTable("items", GetParam().weights, 300, GetParam().dim, 7);
  const OpenLookup opened(WithSequence(table));
  const std::vector<Bag> lists = {{.rows = {299, 0, kZeroRow, 7}, .weights = {}},
                                  {.rows = {}, .weights = {}},
                                  {.rows = {7, 150, kZeroRow, 0}, .weights = {}}};
  const Pooled got = opened.Run({.requests = 3, .examples = 1, .inputs = {lists}});
  ASSERT_EQ(got.sequences[0].size(), 8U * static_cast<size_t>(table.dim));
  size_t at = 0;
  for (const int64_t row : {299, 0, -1, 7, 7, 150, -1, 0}) {
    for (int64_t d = 0; d < table.dim; ++d, ++at) {
      const float expected = row == kZeroRow ? 0.0F : static_cast<float>(table.row(row)[d]);
      ASSERT_EQ(std::bit_cast<uint32_t>(got.sequences[0][at]), std::bit_cast<uint32_t>(expected))
          << "row " << row << ", column " << d;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Weights, SequenceOf,
    ::testing::Values(Kind{"int8", WeightType::kInt8, 4}, Kind{"int8_wide", WeightType::kInt8, 132},
                      Kind{"int4", WeightType::kInt4, 8}, Kind{"int4_wide", WeightType::kInt4, 100},
                      Kind{"fp16", WeightType::kFp16, 12}, Kind{"fp32", WeightType::kFp32, 12},
                      Kind{"int8_dim_1", WeightType::kInt8, 1},
                      Kind{"int4_dim_3", WeightType::kInt4, 3},
                      Kind{"fp16_dim_5", WeightType::kFp16, 5},
                      Kind{"fp32_dim_10", WeightType::kFp32, 10}),
    KindName);

// 1000 ids are several pieces.
TEST(Sequences, OfMoreIdsThanAPieceHasComeInTheirOrder) {
  const TestTable table = MakeTable("items", WeightType::kInt8, 300, 4, 7);
  const OpenLookup opened(WithSequence(table, Scope::kExample));
  Bag bag;
  for (int64_t i = 0; i < 1000; ++i) bag.rows.push_back(i * 7 % 300);
  const Pooled got = opened.Run({.requests = 1, .examples = 1, .inputs = {{bag}}});
  for (size_t i = 0; i < bag.rows.size(); ++i) {
    ASSERT_EQ(got.sequences[0][4 * i + 3], static_cast<float>(table.row(bag.rows[i])[3])) << i;
  }
}

TEST(Sequences, AreNothingWithoutIds) {
  const OpenLookup opened(WithSequence(MakeTable("items", WeightType::kInt8, 5, 4, 1)));
  const Pooled got = opened.Run({.requests = 2, .examples = 2, .inputs = {{Bag(), Bag()}}});
  EXPECT_TRUE(got.sequences[0].empty());
}

TEST(Sequences, RefuseARowThatTheTableDoesNotHave) {
  const OpenLookup opened(WithSequence(MakeTable("items", WeightType::kInt8, 5, 4, 1)));
  for (const int64_t row : {int64_t{5}, int64_t{-2}, std::numeric_limits<int64_t>::max(),
                            std::numeric_limits<int64_t>::min()}) {
    Pooled got;
    const Bag bad{.rows = {0, row}, .weights = {}};
    const Status status = opened.TryRun({.requests = 1, .examples = 1, .inputs = {{bad}}}, &got);
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_EQ(
        status.message(),
        "table 'items': expected a row in -1..4 for feature 'history', got " + std::to_string(row));
  }
}

TEST(Sequences, AreCountedOnTheDevicesOfTheirRows) {
  PackageBuilder builder = WithSequence(MakeTable("items", WeightType::kInt8, 10, 4, 1));
  const auto shard = [](int row_begin, int row_end, int device) -> nlohmann::json {
    return {{"table", "items"},
            {"rows", {row_begin, row_end}},
            {"columns", {0, 4}},
            {"devices", {device}}};
  };
  builder.AddPlanOfShards("cut", {"cpu:0", "cpu:1"}, {shard(0, 4, 0), shard(4, 10, 1)});
  const OpenLookup opened(builder, {}, {.threads = 2, .alone_bytes = 0});
  const Bag bag{.rows = {9, 3, kZeroRow, 5}, .weights = {}};
  for (int i = 0; i < 2; ++i) opened.Run({.requests = 1, .examples = 1, .inputs = {{bag}}});
  const std::vector<DeviceLoad> loads = (*opened.made())->device_loads();
  ASSERT_EQ(loads.size(), 2U);
  EXPECT_EQ(loads[0].rows, 2U);
  EXPECT_EQ(loads[1].rows, 4U);
  for (const DeviceLoad& load : loads) {
    EXPECT_EQ(load.batches, 2U);
    EXPECT_GT(load.lookup_ns, 0U);
  }
}

}  // namespace
}  // namespace embershard
