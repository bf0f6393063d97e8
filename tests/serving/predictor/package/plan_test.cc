#include "package/plan.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "package/golden.h"

namespace embershard {
namespace {

using Json = nlohmann::json;

// One table "t" of 100 rows.
Manifest OneTable(int64_t dim) {
  Manifest manifest;
  TableSpec& table = manifest.tables.emplace_back();
  table.name = "t";
  table.rows = 100;
  table.dim = dim;
  return manifest;
}

Json ShardJson(std::vector<int> rows, std::vector<int> columns, std::vector<int> devices = {0}) {
  return {{"table", "t"}, {"rows", rows}, {"columns", columns}, {"devices", devices}};
}

Result<Plan> Parse(const Json& shards, int64_t dim = 16) {
  const Json plan = {
      {"format_version", 0}, {"name", "p"}, {"devices", {"cpu:0", "cuda:12"}}, {"shards", shards}};
  return ParsePlan(plan.dump(), "p", OneTable(dim));
}

TEST(Plan, HoldsWhatTheGoldenPackageSays) {
  const std::string text = testing::ReadFile(testing::GoldenFolder() / PlanFile("halves"));
  const Result<Plan> plan = ParsePlan(text, "halves", testing::GoldenManifest());
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->name, "halves");
  EXPECT_EQ(plan->devices, (std::vector<std::string>{"cpu:0", "cpu:1"}));
  ASSERT_EQ(plan->shards.size(), 5U);
  const Shard& second = plan->shards[2];
  EXPECT_EQ(second.table, 1U);
  EXPECT_EQ(second.row_begin, 0);
  EXPECT_EQ(second.row_end, 300);
  EXPECT_EQ(second.column_begin, 4);
  EXPECT_EQ(second.column_end, 8);
  EXPECT_EQ(second.devices, std::vector<size_t>{1});
  EXPECT_EQ(plan->shards[4].devices, (std::vector<size_t>{0, 1}));
}

TEST(Plan, TakesRectanglesThatTileInAnyOrder) {
  EXPECT_TRUE(Parse({ShardJson({60, 100}, {0, 8}), ShardJson({0, 40}, {0, 16}),
                     ShardJson({40, 100}, {8, 16}), ShardJson({40, 60}, {0, 8})})
                  .ok());
}

// A pinwheel: no straight cut goes through the whole table.
TEST(Plan, TakesRectanglesThatNoCutDivides) {
  EXPECT_TRUE(Parse({ShardJson({0, 30}, {0, 12}), ShardJson({0, 70}, {12, 16}),
                     ShardJson({70, 100}, {4, 16}), ShardJson({30, 100}, {0, 4}),
                     ShardJson({30, 70}, {4, 12})})
                  .ok());
}

TEST(Plan, TakesALastColumnShardThatEndsAtADimThatIsNoMultipleOf4) {
  const Json shards = {ShardJson({0, 100}, {0, 4}), ShardJson({0, 100}, {4, 6})};
  const Result<Plan> plan = Parse(shards, 6);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->shards[1].column_end, 6);
  EXPECT_EQ(Parse({ShardJson({0, 100}, {0, 5}), ShardJson({0, 100}, {5, 6})}, 6).status().message(),
            "plans/p.json: shards.0.columns: expected multiples of 4, or 6 at the end, got [0,5]");
  EXPECT_EQ(Parse(Json::array({ShardJson({0, 100}, {0, 8})}), 6).status().message(),
            "plans/p.json: shards.0.columns: expected a span of 0 .. 6, got [0,8]");
}

TEST(Plan, RefusesAnOverlapEvenWhereTheAreaIsRight) {
  const Result<Plan> plan = Parse({ShardJson({0, 50}, {0, 16}), ShardJson({40, 90}, {0, 16})});
  EXPECT_EQ(plan.status().message(),
            "plans/p.json: shards.1: expected rectangles of t that do not overlap, got one over "
            "shards.0");
}

// The wide one meets a narrow one that ended above it, and one that did not.
TEST(Plan, FindsTheOverlapBehindAShardThatHasEnded) {
  const Result<Plan> plan =
      Parse({ShardJson({0, 10}, {0, 4}), ShardJson({0, 50}, {4, 8}), ShardJson({20, 30}, {0, 16})});
  EXPECT_EQ(plan.status().message(),
            "plans/p.json: shards.2: expected rectangles of t that do not overlap, got one over "
            "shards.1");
}

TEST(Plan, RefusesTheSameShardTwice) {
  EXPECT_FALSE(Parse({ShardJson({0, 100}, {0, 16}), ShardJson({0, 100}, {0, 16})}).ok());
}

TEST(Plan, RefusesAHole) {
  const Result<Plan> plan = Parse({ShardJson({0, 50}, {0, 16}), ShardJson({50, 100}, {0, 12})});
  EXPECT_EQ(plan.status().message(),
            "plans/p.json: shards: expected rectangles that cover the 100 x 16 values of t, got "
            "1400 of 1600");
  EXPECT_FALSE(Parse(Json::array()).ok());
}

TEST(Plan, RefusesDevicesThatCannotBe) {
  for (const char* device : {"cpu", "cpu:", "cpu:01", "cpu:12345", "cpu:-1", "tpu:0", "CPU:0"}) {
    const Json plan = {
        {"format_version", 0}, {"name", "p"}, {"devices", {device}}, {"shards", Json::array()}};
    EXPECT_EQ(ParsePlan(plan.dump(), "p", {}).status().message(),
              std::string("plans/p.json: devices.0: expected a device like cpu:0 or cuda:0, with a "
                          "number of at most 9999, got ") +
                  device);
  }
}

}  // namespace
}  // namespace embershard
