#include "lookup/sequence_lookup.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "package/id_map.h"
#include "testing/package_builder.h"
#include "testing/scratch_folder.h"
#include "testing/test_table.h"

namespace embershard {
namespace {

using testing::MakeTable;
using testing::PackageBuilder;
using testing::ScratchFolder;
using testing::TestTable;

// A package of one sequence in `table`.
class Opened {
 public:
  explicit Opened(const TestTable& table) {
    PackageBuilder builder;
    builder.AddTable(table);
    builder.AddSparse("history", Scope::kRequest, false,
                      {{.table = table.name, .pooling = Pooling::kSum, .sequence = true}});
    builder.AddOutput("score", Scope::kExample, {});
    builder.Write(folder_.path());
    auto package = Package::Open(folder_.path(), {});
    EXPECT_TRUE(package.ok()) << package.status().message();
    package_ = std::move(*package);
  }

  Status Run(const std::vector<int64_t>& rows, std::vector<float>* values) const {
    constexpr float kNothing = std::numeric_limits<float>::quiet_NaN();
    const auto dim = static_cast<size_t>(package_->schema().sequences[0].dim);
    values->assign(rows.size() * dim, kNothing);
    return SequenceLookup(*package_).Run(0, rows, values->data());
  }

 private:
  ScratchFolder folder_;
  std::unique_ptr<Package> package_;
};

struct Kind {
  const char* name;
  WeightType weights;
  int64_t dim;
};

void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

class SequenceLookupOf : public ::testing::TestWithParam<Kind> {};

TEST_P(SequenceLookupOf, GivesEachIdItsRowBitForBit) {
  const TestTable table = MakeTable("items", GetParam().weights, 300, GetParam().dim, 7);
  const Opened opened(table);
  const std::vector<int64_t> rows = {299, 0, kZeroRow, 7, 7, 150, kZeroRow, 0};
  std::vector<float> values;
  ASSERT_TRUE(opened.Run(rows, &values).ok());
  size_t at = 0;
  for (const int64_t row : rows) {
    for (int64_t d = 0; d < table.dim; ++d, ++at) {
      const float expected = row == kZeroRow ? 0.0F : static_cast<float>(table.row(row)[d]);
      ASSERT_EQ(std::bit_cast<uint32_t>(values[at]), std::bit_cast<uint32_t>(expected))
          << "row " << row << ", column " << d;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Weights, SequenceLookupOf,
                         ::testing::Values(Kind{"int8", WeightType::kInt8, 4},
                                           Kind{"int8_wide", WeightType::kInt8, 132},
                                           Kind{"int4", WeightType::kInt4, 8},
                                           Kind{"int4_wide", WeightType::kInt4, 100},
                                           Kind{"fp16", WeightType::kFp16, 12}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(SequenceLookup, GivesNothingForNoIds) {
  const Opened opened(MakeTable("items", WeightType::kInt8, 5, 4, 1));
  std::vector<float> values;
  EXPECT_TRUE(opened.Run({}, &values).ok());
}

TEST(SequenceLookup, RefusesARowThatTheTableDoesNotHave) {
  const Opened opened(MakeTable("items", WeightType::kInt8, 5, 4, 1));
  std::vector<float> values;
  for (const int64_t row : {int64_t{5}, int64_t{-2}, std::numeric_limits<int64_t>::max(),
                            std::numeric_limits<int64_t>::min()}) {
    const Status status = opened.Run({0, row}, &values);
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_EQ(status.message(), "table 'items': row " + std::to_string(row) +
                                    " of feature 'history' is not in -1..4");
  }
}

double ValueOfHalf(uint16_t half) {
  const int exponent = half >> 10 & 0x1f;
  const int mantissa = half & 0x3ff;
  const double size =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return half >> 15 != 0 ? -size : size;
}

// A sum that float32 must round, unlike those of the test tables. In double it is exact.
TEST(DequantizeRow, RoundsOnce) {
  std::mt19937 random(3);
  for (int i = 0; i < 2000; ++i) {
    const auto scale = static_cast<uint16_t>(0x1000 + random() % 0x4000);  // 2^-11 .. 2^5
    const auto bias = static_cast<uint16_t>(0x9000 + random() % 0x4000);   // The same, negative.
    const auto code = static_cast<uint8_t>(random());
    const std::byte row[5] = {std::byte(scale & 0xff), std::byte(scale >> 8),
                              std::byte(bias & 0xff), std::byte(bias >> 8), std::byte{code}};
    float value = 0;
    DequantizeRow(WeightType::kInt8, row, 1, &value);
    ASSERT_EQ(value, static_cast<float>(ValueOfHalf(scale) * code + ValueOfHalf(bias)));
  }
}

// Each of the 65536.
TEST(DequantizeRow, ReadsEveryHalf) {
  for (uint32_t half = 0; half <= 0xffff; ++half) {
    const std::byte row[2] = {static_cast<std::byte>(half & 0xff),
                              static_cast<std::byte>(half >> 8)};
    float value = 0;
    DequantizeRow(WeightType::kFp16, row, 1, &value);
    const int exponent = static_cast<int>(half >> 10 & 0x1f);
    const int mantissa = static_cast<int>(half & 0x3ff);
    const double sign = half >> 15 != 0 ? -1 : 1;
    if (exponent == 31) {
      ASSERT_EQ(std::isnan(value), mantissa != 0) << half;
      if (mantissa == 0) {
        ASSERT_EQ(value, sign * std::numeric_limits<double>::infinity());
      }
      continue;
    }
    ASSERT_EQ(static_cast<double>(value), ValueOfHalf(static_cast<uint16_t>(half))) << half;
    ASSERT_EQ(std::signbit(value), sign < 0) << half;
  }
}

}  // namespace
}  // namespace embershard
