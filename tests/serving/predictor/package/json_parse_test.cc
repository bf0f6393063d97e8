#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "package/json.h"

namespace embershard {
namespace {

using Json = nlohmann::json;

std::string Refused(std::string_view text) {
  Json document;
  const Status status = ParseJson(text, "file.json", &document);
  EXPECT_EQ(status.code(), StatusCode::kBadPackage) << text;
  return status.message();
}

TEST(ParseJson, ReadsEveryKindOfValue) {
  Json document;
  const Status status = ParseJson(
      R"( {"a": [1, -2, 18446744073709551615, 0.5, {"b": null}], "\u00e9": "\n", "c": [true]} )",
      "file.json", &document);
  ASSERT_TRUE(status.ok()) << status.message();
  const Json expected = {{"a", {1, -2, 18446744073709551615U, 0.5, {{"b", nullptr}}}},
                         {"é", "\n"},
                         {"c", Json::array({true})}};
  EXPECT_EQ(document, expected);
  EXPECT_TRUE(document["a"][2].is_number_unsigned());
}

TEST(ParseJson, TakesTheSameKeyInDifferentObjects) {
  Json document;
  EXPECT_TRUE(ParseJson(R"([{"a": 1}, {"a": {"a": 2}}])", "file.json", &document).ok());
}

TEST(ParseJson, TakesThirtyTwoLevelsAndNoMore) {
  Json document;
  const std::string deep = std::string(32, '[') + std::string(32, ']');
  EXPECT_TRUE(ParseJson(deep, "file.json", &document).ok());
  EXPECT_EQ(Refused("[" + deep + "]"),
            "file.json: json: expected at most 32 levels, got deeper nesting");
  Refused(std::string(1 << 20, '['));
}

TEST(ParseJson, RefusesTooLongAText) {
  const std::string message = Refused(std::string((64 << 20) + 1, ' '));
  EXPECT_EQ(message, "file.json: json: expected at most 67108864 bytes, got 67108865");
}

// Expected texts: Python's repr() of the same numbers.
TEST(CanonicalJson, WritesNumbersAsPythonDoes) {
  const std::vector<std::pair<double, std::string>> cases = {
      {0.0, "0.0"},
      {-0.0, "-0.0"},
      {1.0, "1.0"},
      {100.0, "100.0"},
      {-3.3, "-3.3"},
      {0.1, "0.1"},
      {0.30000000000000004, "0.30000000000000004"},
      {0.0001, "0.0001"},
      {-0.00012345, "-0.00012345"},
      {1e-5, "1e-05"},
      {9.5367431640625e-07, "9.5367431640625e-07"},
      {2e-7, "2e-07"},
      {123456.75, "123456.75"},
      {123456789012345.67, "123456789012345.67"},
      {999999999999999.9, "999999999999999.9"},
      {1e15, "1000000000000000.0"},
      {9007199254740993.0, "9007199254740992.0"},
      {1e16, "1e+16"},
      {1e22, "1e+22"},
      {5e-324, "5e-324"},
      {2.2250738585072014e-308, "2.2250738585072014e-308"},
      {1.7976931348623157e308, "1.7976931348623157e+308"},
  };
  for (const auto& [value, expected] : cases) EXPECT_EQ(CanonicalJson(value), expected);
}

TEST(CanonicalJson, SortsKeysAndLeavesOutSpaces) {
  const Json document = {{"b", {1, -2, 1.0}},
                         {"a", {{"é", "\x01\n\"\\/\x7F"}}},
                         {"B", Json::object()},
                         {"c", Json::array()},
                         {"d", {nullptr, true}}};
  EXPECT_EQ(CanonicalJson(document),
            "{\"B\":{},\"a\":{\"é\":\"\\u0001\\n\\\"\\\\/\x7F\"},\"b\":[1,-2,1.0],\"c\":[],"
            "\"d\":[null,true]}");
}

}  // namespace
}  // namespace embershard
