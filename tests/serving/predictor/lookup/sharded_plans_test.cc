// Every way to shard a table, against the same lookups without shards and against plain loops.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "lookup/lookup_fixture.h"

namespace embershard {
namespace {

using nlohmann::json;
using testing::Bag;
using testing::Bags;
using testing::EveryKindOfLookup;
using testing::EveryKindOfTable;
using testing::ExpectedOf;
using testing::ExpectNear;
using testing::ExpectSameBits;
using testing::MakeTable;
using testing::OpenLookup;
using testing::PackageBuilder;
using testing::Pooled;
using testing::RandomBags;
using testing::ShardOf;
using testing::TestTable;

// Either the calling thread does everything, or every device has threads that are woken each time.
const std::vector<ShardedLookupOptions> kThreadings = {
    {.threads = 1, .alone_bytes = UINT64_MAX},
    {.threads = 1, .alone_bytes = 0},
    {.threads = 6, .alone_bytes = 0},
};

OpenLookup Unsharded() { return OpenLookup(EveryKindOfLookup(), {}, kThreadings[0]); }

// Tables that `shards` leaves out lie whole on the first device.
OpenLookup Sharded(const std::vector<std::string>& devices, json shards,
                   const ShardedLookupOptions& options) {
  PackageBuilder builder = EveryKindOfLookup();
  for (const TestTable& table : EveryKindOfTable()) {
    const auto is_of = [&table](const json& shard) { return shard["table"] == table.name; };
    if (std::ranges::none_of(shards, is_of)) {
      shards.push_back(ShardOf(table.name, 0, table.rows, 0, table.dim, {0}));
    }
  }
  builder.AddPlanOfShards("cut", devices, shards);
  return OpenLookup(builder, {}, options);
}

void ExpectClose(const std::vector<float>& got, const std::vector<float>& whole,
                 const testing::Expected& expected) {
  ASSERT_EQ(got.size(), whole.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], whole[i], 1e-6 * expected.magnitudes[i]) << "value " << i;
  }
}

// Several batches, alone and with threads: what `shards` give against no shards. Sequences are
// the same bits always.
void ExpectLikeUnsharded(const std::vector<std::string>& devices, const json& shards,
                         bool same_bits) {
  const OpenLookup whole = Unsharded();
  for (const ShardedLookupOptions& options : kThreadings) {
    const OpenLookup sharded = Sharded(devices, shards, options);
    ASSERT_TRUE(sharded.made().ok()) << sharded.made().status().message();
    std::mt19937 random(21);
    for (const auto& [requests, examples, longest] :
         {std::tuple(1, 1, 0), std::tuple(1, 1, 4), std::tuple(3, 7, 1), std::tuple(40, 150, 30)}) {
      const Bags bags =
          RandomBags(whole.package().schema(), static_cast<size_t>(requests),
                     static_cast<size_t>(examples), static_cast<size_t>(longest), &random);
      const Pooled expected = whole.Run(bags);
      const Pooled got = sharded.Run(bags);
      if (same_bits) {
        ExpectSameBits(got, expected);
        continue;
      }
      for (size_t i = 0; i < expected.sequences.size(); ++i) {
        ExpectSameBits(got.sequences[i], expected.sequences[i]);  // Sequences are not summed.
      }
      for (const Scope scope : {Scope::kRequest, Scope::kExample}) {
        const auto exact = ExpectedOf(whole.package(), EveryKindOfTable(), bags, scope);
        const bool request = scope == Scope::kRequest;
        ExpectNear(request ? got.request : got.example, exact);
        ExpectClose(request ? got.request : got.example,
                    request ? expected.request : expected.example, exact);
      }
    }
  }
}

TEST(ShardedPlans, WholeTablesOnDevicesGiveTheSameBits) {
  ExpectLikeUnsharded({"cpu:0", "cpu:1", "cpu:2"},
                      {ShardOf("bytes", 0, 90, 0, 20, {2}), ShardOf("nibbles", 0, 70, 0, 35, {0}),
                       ShardOf("halves", 0, 50, 0, 10, {2})},
                      true);
}

TEST(ShardedPlans, ColumnsOnDevicesGiveTheSameBits) {
  ExpectLikeUnsharded(
      {"cpu:0", "cpu:1", "cpu:2", "cpu:3"},
      {ShardOf("bytes", 0, 90, 0, 4, {0}), ShardOf("bytes", 0, 90, 4, 20, {1}),
       ShardOf("nibbles", 0, 70, 0, 20, {3}), ShardOf("nibbles", 0, 70, 20, 24, {2}),
       ShardOf("nibbles", 0, 70, 24, 35, {1}), ShardOf("halves", 0, 50, 0, 8, {1}),
       ShardOf("halves", 0, 50, 8, 10, {1})},
      true);
}

TEST(ShardedPlans, ReplicasGiveTheSameBits) {
  ExpectLikeUnsharded(
      {"cpu:0", "cpu:1"},
      {ShardOf("bytes", 0, 90, 0, 20, {1, 0}), ShardOf("nibbles", 0, 70, 0, 35, {0, 1}),
       ShardOf("halves", 0, 50, 0, 10, {1})},
      true);
}

TEST(ShardedPlans, RowsOnDevicesGiveTheSumsOfTheirParts) {
  ExpectLikeUnsharded(
      {"cpu:0", "cpu:1", "cpu:2", "cpu:3"},
      {ShardOf("bytes", 60, 90, 0, 20, {0}), ShardOf("bytes", 0, 1, 0, 20, {1}),
       ShardOf("bytes", 1, 60, 0, 20, {2}), ShardOf("nibbles", 0, 35, 0, 35, {3}),
       ShardOf("nibbles", 35, 70, 0, 35, {0}), ShardOf("halves", 0, 25, 0, 10, {1, 2}),
       ShardOf("halves", 25, 50, 0, 10, {3, 0})},
      false);
}

TEST(ShardedPlans, APinwheelOfRowsAndColumnsGivesTheSumsOfItsParts) {
  ExpectLikeUnsharded({"cpu:0", "cpu:1"},
                      {ShardOf("bytes", 0, 30, 0, 16, {0}), ShardOf("bytes", 0, 60, 16, 20, {1}),
                       ShardOf("bytes", 60, 90, 4, 20, {0, 1}), ShardOf("bytes", 30, 90, 0, 4, {1}),
                       ShardOf("bytes", 30, 60, 4, 16, {0}), ShardOf("nibbles", 0, 70, 0, 35, {0}),
                       ShardOf("halves", 0, 50, 0, 10, {1})},
                      false);
}

// Cuts a rectangle at random, again and again.
void CutAtRandom(const std::string& table, int64_t row_begin, int64_t row_end, int64_t column_begin,
                 int64_t column_end, std::mt19937* random, json* shards) {
  const bool rows = (*random)() % 2 == 0;
  const int64_t choices = rows ? row_end - row_begin - 1 : (column_end - column_begin + 3) / 4 - 1;
  if ((*random)() % 3 == 0 || choices == 0) {
    std::vector<size_t> devices = {0, 1, 2, 3};
    std::ranges::shuffle(devices, *random);
    devices.resize((*random)() % 4 == 0 ? 2 : 1);
    shards->push_back(ShardOf(table, row_begin, row_end, column_begin, column_end, devices));
    return;
  }
  const auto at = static_cast<int64_t>((*random)() % static_cast<uint32_t>(choices)) + 1;
  const int64_t cut = rows ? row_begin + at : column_begin + 4 * at;
  CutAtRandom(table, row_begin, rows ? cut : row_end, column_begin, rows ? column_end : cut, random,
              shards);
  CutAtRandom(table, rows ? cut : row_begin, row_end, rows ? column_begin : cut, column_end, random,
              shards);
}

TEST(ShardedPlans, PlansCutAtRandomGiveTheSumsOfTheirParts) {
  for (uint32_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    json shards = json::array();
    for (const TestTable& table : EveryKindOfTable()) {
      CutAtRandom(table.name, 0, table.rows, 0, table.dim, &random, &shards);
    }
    std::shuffle(shards.begin(), shards.end(), random);
    ExpectLikeUnsharded({"cpu:0", "cpu:1", "cpu:2", "cpu:3"}, shards, false);
  }
}

TEST(ShardedPlans, PartsOfRowsAreAddedInTheOrderOfRowsWhicheverDeviceIsFirst) {
  // 1e8 + 1 - 1e8 is 0 in float32 from left to right, but 1 if the large numbers are added first.
  const std::vector<float> partial = {1e8F, 1.0F, -1e8F};
  TestTable table = MakeTable("table", WeightType::kFp16, 3, 4, 1);
  std::fill(table.bytes.begin(), table.bytes.end(), 0);
  for (size_t row = 0; row < 3; ++row) {
    for (size_t d = 0; d < 4; ++d) {
      table.bytes[row * 8 + d * 2 + 1] = 0x3C;  // 1.0
      table.values[row * 4 + d] = 1;
    }
  }
  PackageBuilder builder;
  builder.AddTable(table);
  builder.AddSparse("feature", Scope::kExample, true, {{"table"}});
  builder.AddOutput("score", Scope::kExample, {});
  for (const auto& [first, second, third] :
       {std::tuple(0U, 1U, 2U), std::tuple(2U, 1U, 0U), std::tuple(1U, 2U, 0U)}) {
    PackageBuilder copy = builder;
    copy.AddPlanOfShards(
        "cut", {"cpu:0", "cpu:1", "cpu:2"},
        {ShardOf("table", 2, 3, 0, 4, {third}), ShardOf("table", 0, 1, 0, 4, {first}),
         ShardOf("table", 1, 2, 0, 4, {second})});
    const OpenLookup lookup(copy, {}, {.threads = 3, .alone_bytes = 0});
    const Bag bag{.rows = {2, 1, 0}, .weights = {partial[2], partial[1], partial[0]}};
    const Pooled pooled = lookup.Run({.requests = 0, .examples = 1, .inputs = {{bag}}});
    EXPECT_EQ(pooled.example, std::vector<float>(4, 0.0F));
  }
}

TEST(ShardedPlans, AMeanDividesByTheWholeListAlsoWhereItsRowsLieApart) {
  const TestTable table = MakeTable("table", WeightType::kInt8, 10, 4, 5);
  PackageBuilder builder;
  builder.AddTable(table);
  builder.AddSparse("feature", Scope::kExample, false, {{"table", Pooling::kMean}});
  builder.AddOutput("score", Scope::kExample, {});
  builder.AddPlanOfShards("cut", {"cpu:0", "cpu:1"},
                          {ShardOf("table", 0, 5, 0, 4, {0}), ShardOf("table", 5, 10, 0, 4, {1})});
  for (const ShardedLookupOptions& options : kThreadings) {
    const OpenLookup lookup(builder, {}, options);
    const Bag bag{.rows = {1, kZeroRow, 7, kZeroRow}, .weights = {}};
    const Pooled pooled = lookup.Run({.requests = 0, .examples = 1, .inputs = {{bag}}});
    for (size_t d = 0; d < 4; ++d) {
      const float sum = static_cast<float>(table.row(1)[d]) + static_cast<float>(table.row(7)[d]);
      EXPECT_EQ(pooled.example[d], sum / 4);
    }
  }
}

TEST(ShardedPlans, DevicesSayWhatTheyHoldAndHaveDone) {
  PackageBuilder builder;
  builder.AddTable(MakeTable("table", WeightType::kInt8, 10, 12, 5));  // Rows of 16 bytes.
  builder.AddSparse("feature", Scope::kExample, false, {{"table"}});
  builder.AddOutput("score", Scope::kExample, {});
  builder.AddPlanOfShards(
      "cut", {"cpu:0", "cpu:5", "cpu:1"},
      {ShardOf("table", 0, 4, 0, 12, {2}), ShardOf("table", 4, 10, 0, 12, {0})});
  for (const ShardedLookupOptions& options : kThreadings) {
    const OpenLookup lookup(builder, {}, options);
    const Bag bag{.rows = {1, kZeroRow, 7, 9, 9}, .weights = {}};
    for (int i = 0; i < 2; ++i) lookup.Run({.requests = 0, .examples = 1, .inputs = {{bag}}});
    const std::vector<DeviceLoad> loads = (*lookup.made())->device_loads();
    ASSERT_EQ(loads.size(), 2U);
    EXPECT_EQ(loads[0].name, "cpu:0");
    EXPECT_EQ(loads[0].table_bytes, 6U * 16);
    EXPECT_EQ(loads[0].rows, 6U);
    EXPECT_EQ(loads[1].name, "cpu:1");
    EXPECT_EQ(loads[1].table_bytes, 4U * 16);
    EXPECT_EQ(loads[1].rows, 2U);
    for (const DeviceLoad& load : loads) {
      EXPECT_EQ(load.batches, 2U);
      EXPECT_GT(load.lookup_ns, 0U);
    }
  }
}

TEST(ShardedPlans, ARowBehindTheTableIsAnErrorWhereverItsShardLies) {
  for (const ShardedLookupOptions& options : kThreadings) {
    PackageBuilder builder;
    builder.AddTable(MakeTable("table", WeightType::kInt8, 10, 4, 5));
    builder.AddSparse("feature", Scope::kExample, false, {{"table"}});
    builder.AddOutput("score", Scope::kExample, {});
    builder.AddPlanOfShards(
        "cut", {"cpu:0", "cpu:1"},
        {ShardOf("table", 0, 5, 0, 4, {0}), ShardOf("table", 5, 10, 0, 4, {1})});
    const OpenLookup lookup(builder, {}, options);
    Pooled pooled;
    const Bag bad{.rows = {3, 10}, .weights = {}};
    const Status status = lookup.TryRun({.requests = 0, .examples = 1, .inputs = {{bad}}}, &pooled);
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_EQ(status.message(),
              "table 'table': expected a row in -1..9 for feature 'feature', got 10");
    const Bag good{.rows = {9}, .weights = {}};
    lookup.Run({.requests = 0, .examples = 1, .inputs = {{good}}});
  }
}

}  // namespace
}  // namespace embershard
