#include "package/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace embershard {
namespace {

std::string SafetensorsFile(std::string header, const std::string& data, size_t align = 8) {
  header.append((align - (header.size() + 8) % align) % align, ' ');
  const uint64_t size = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &size, 8);
  return file + header + data;
}

std::string ErrorOf(const std::string& file) {
  const Result<Safetensors> parsed = Safetensors::Parse(file, "f");
  EXPECT_EQ(parsed.status().code(), StatusCode::kBadPackage);
  return parsed.status().message();
}

TEST(Safetensors, GivesTensorsInAnyOrder) {
  const std::string data("\x01\0\0\0\xFE\xFF\xFF\xFF\0\0\x80\x3F", 12);
  const Result<Safetensors> file = Safetensors::Parse(
      SafetensorsFile(R"({"b": {"dtype": "F32", "shape": [1, 1], "data_offsets": [8, 12]},)"
                      R"( "a": {"dtype": "I32", "shape": [2], "data_offsets": [0, 8]},)"
                      R"( "e": {"dtype": "I64", "shape": [0, 9], "data_offsets": [8, 8]}})",
                      data),
      "f");
  ASSERT_TRUE(file.ok()) << file.status().message();
  const auto a = file->Tensor<int32_t>("a", {2});
  ASSERT_TRUE(a.ok()) << a.status().message();
  EXPECT_EQ((*a)[0], 1);
  EXPECT_EQ((*a)[1], -2);
  const auto b = file->Tensor<float>("b", {1, 1});
  ASSERT_TRUE(b.ok()) << b.status().message();
  EXPECT_EQ((*b)[0], 1.0F);
  const auto e = file->Tensor<int64_t>("e", {0, 9});
  ASSERT_TRUE(e.ok()) << e.status().message();
  EXPECT_TRUE(e->empty());
}

TEST(Safetensors, RefusesATensorOfAnotherTypeOrShape) {
  const Result<Safetensors> file = Safetensors::Parse(
      SafetensorsFile(R"({"a": {"dtype": "I32", "shape": [2], "data_offsets": [0, 8]}})",
                      "12345678"),
      "f");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->Tensor<float>("a", {2}).status().message(),
            "f: a: expected F32 [2], got I32 [2]");
  EXPECT_EQ(file->Tensor<int32_t>("a", {1, 2}).status().message(),
            "f: a: expected I32 [1, 2], got I32 [2]");
  EXPECT_EQ(file->Tensor<int32_t>("b", {}).status().message(),
            "f: b: expected I32 [], got nothing");
}

TEST(Safetensors, RefusesAHeaderThatIsCut) {
  EXPECT_EQ(ErrorOf(""), "f: header: expected 8 bytes and more, got 0");
  EXPECT_EQ(ErrorOf("1234567"), "f: header: expected 8 bytes and more, got 7");
  EXPECT_EQ(ErrorOf(std::string("\x03\0\0\0\0\0\0\0{}", 10)),
            "f: header: expected 2 .. 2 bytes of header, got 3");
  EXPECT_EQ(ErrorOf(std::string(8, '\xFF') + "{}"),
            "f: header: expected 2 .. 2 bytes of header, got 18446744073709551615");
}

TEST(Safetensors, RefusesTensorsThatDoNotFillTheData) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("shape": [3], "data_offsets": [0, 8])",
       "a.data_offsets: expected 12 bytes from 0 on, got [0, 8]"},
      {R"("shape": [2], "data_offsets": [4, 12])",
       "a.data_offsets: expected 8 bytes from 0 on, got [4, 12]"},
      {R"("shape": [1], "data_offsets": [0, 4])", "header: expected 4 bytes of data, got 8"},
      {R"("shape": [3], "data_offsets": [0, 12])", "header: expected 12 bytes of data, got 8"},
      {R"("shape": [0], "data_offsets": [8, 0])",
       "a.data_offsets: expected 0 bytes from 0 on, got [8, 0]"},
      // 2^47 * 2^47 * 4 is 0 in 64 bits.
      {R"("shape": [140737488355328, 140737488355328], "data_offsets": [0, 0])",
       "a.data_offsets: expected 18446744073709551615 bytes from 0 on, got [0, 0]"},
      {R"("shape": [1, 1, 1, 1, 2], "data_offsets": [0, 8])",
       "a.shape: expected at most 4 dimensions, got [1,1,1,1,2]"},
      {R"("shape": [-2], "data_offsets": [0, 8])",
       "a.shape.0: expected 0 .. 281474976710655, got -2"},
  };
  for (const auto& [entry, expected] : cases) {
    EXPECT_EQ(ErrorOf(SafetensorsFile(R"({"a": {"dtype": "F32", )" + entry + "}}", "12345678")),
              "f: " + expected);
  }
}

TEST(Safetensors, RefusesDataThatStartElsewhere) {
  EXPECT_EQ(ErrorOf(SafetensorsFile("{} ", "", 1)),
            "f: header: expected data at a multiple of 8, got 11");
}

TEST(Safetensors, RefusesOverlappingTensors) {
  EXPECT_EQ(
      ErrorOf(SafetensorsFile(R"({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]},)"
                              R"( "b": {"dtype": "U8", "shape": [4], "data_offsets": [2, 6]}})",
                              "123456")),
      "f: b.data_offsets: expected 4 bytes from 4 on, got [2, 6]");
}

}  // namespace
}  // namespace embershard
