#include "lookup/bag_sums.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "testing/test_table.h"

namespace embershard {
namespace {

using testing::MakeTable;
using testing::TestTable;

std::vector<const BagSumsKernel*> KernelsOfThisProcessor() {
  std::vector<const BagSumsKernel*> kernels = {&kScalarBagSums};
#if defined(__x86_64__)
  const BagSumsKernel* best = &BestBagSums();
  if (best != &kScalarBagSums) kernels.push_back(&kAvx2BagSums);
  if (best == &kAvx512BagSums) kernels.push_back(&kAvx512BagSums);
#endif
  return kernels;
}

void SumWith(const BagSumsKernel& kernel, WeightType weights, const BagSums& call) {
  if (weights == WeightType::kInt8) kernel.int8(call);
  if (weights == WeightType::kInt4) kernel.int4(call);
  if (weights == WeightType::kFp16) kernel.fp16(call);
}

struct Lists {
  std::vector<int64_t> rows;
  std::vector<int64_t> offsets = {0};
  std::vector<float> weights;
};

Lists RandomLists(int64_t table_rows, size_t bags, size_t longest, std::mt19937* random) {
  Lists lists;
  for (size_t bag = 0; bag < bags; ++bag) {
    const size_t length = (*random)() % (longest + 1);
    for (size_t i = 0; i < length; ++i) {
      lists.rows.push_back(static_cast<int64_t>((*random)()) % table_rows);
      lists.weights.push_back(static_cast<float>((*random)() % 1000) / 300 - 1);
    }
    lists.offsets.push_back(static_cast<int64_t>(lists.rows.size()));
  }
  return lists;
}

// What bag_sums.h promises, value by value: each rounded where it says so.
float PlainSum(const TestTable& table, const Lists& lists, size_t bag, size_t column, bool weighted,
               bool mean) {
  float sum = 0;
  for (int64_t i = lists.offsets[bag]; i < lists.offsets[bag + 1]; ++i) {
    const auto at = static_cast<size_t>(i);
    const auto value = static_cast<float>(table.row(lists.rows[at])[column]);
    sum = weighted ? std::fma(lists.weights[at], value, sum) : sum + value;
  }
  const int64_t length = lists.offsets[bag + 1] - lists.offsets[bag];
  return mean && length > 1 ? sum * (1.0F / static_cast<float>(length)) : sum;
}

struct Case {
  WeightType weights;
  int64_t dim;
};

class EveryDim : public ::testing::TestWithParam<Case> {};

// The table lies in memory of just its size: a kernel that reads past a row's end, or writes
// past a vector's, is caught by AddressSanitizer or by the margins.
TEST_P(EveryDim, EveryKernelGivesTheBitsOfAPlainLoop) {
  const TestTable table = MakeTable("table", GetParam().weights, 40, GetParam().dim, 3);
  const auto dim = static_cast<size_t>(table.dim);
  std::mt19937 random(7);
  for (const size_t longest : {size_t{1}, size_t{90}}) {
    const Lists lists = RandomLists(table.rows, 9, longest, &random);
    for (const BagSumsKernel* kernel : KernelsOfThisProcessor()) {
      for (const bool weighted : {false, true}) {
        for (const bool mean : {false, true}) {
          for (size_t first = 0; first < dim; first += std::max<size_t>(4, dim / 12 * 4)) {
            SCOPED_TRACE(std::string(kernel->name) + " from " + std::to_string(first));
            constexpr float kMargin = 12345;
            const size_t columns = dim - first;
            const size_t stride = columns + 4;
            std::vector<float> sums(9 * stride, kMargin);
            SumWith(*kernel, table.weights,
                    {.table = reinterpret_cast<const std::byte*>(table.bytes.data()),
                     .row_bytes = static_cast<size_t>(table.row_bytes),
                     .first_column = first,
                     .columns = columns,
                     .rows = lists.rows.data(),
                     .offsets = lists.offsets.data(),
                     .weights = weighted ? lists.weights.data() : nullptr,
                     .bags = 9,
                     .mean_offsets = mean ? lists.offsets.data() : nullptr,
                     .rows_ahead = 8,
                     .sums = sums.data(),
                     .stride = stride});
            for (size_t bag = 0; bag < 9; ++bag) {
              for (size_t d = 0; d < stride; ++d) {
                const float expected =
                    d < columns ? PlainSum(table, lists, bag, first + d, weighted, mean) : kMargin;
                ASSERT_EQ(std::bit_cast<uint32_t>(sums[bag * stride + d]),
                          std::bit_cast<uint32_t>(expected))
                    << "bag " << bag << " column " << d;
              }
            }
          }
        }
      }
    }
  }
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const WeightType weights : {WeightType::kInt8, WeightType::kInt4, WeightType::kFp16}) {
    // Around the vectors of 8 and 16, and the 8 of them that are summed at once.
    for (const int64_t dim : {4, 8, 12, 16, 20, 60, 64, 68, 124, 128, 132, 260}) {
      cases.push_back({weights, dim});
    }
  }
  return cases;
}

std::string NameOf(const ::testing::TestParamInfo<Case>& info) {
  constexpr std::array kNames = {"int8", "int4", "fp16"};
  return std::string(kNames[static_cast<size_t>(info.param.weights)]) + "_dim_" +
         std::to_string(info.param.dim);
}

INSTANTIATE_TEST_SUITE_P(BagSums, EveryDim, ::testing::ValuesIn(Cases()), NameOf);

TEST(BagSums, EveryHalfIsReadAsTheFloatItIs) {
  // Rows of four fp16: each of the 65536, NaNs left out.
  std::vector<uint16_t> halves;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    if ((bits & 0x7C00U) != 0x7C00U || (bits & 0x3FFU) == 0) {
      halves.push_back(static_cast<uint16_t>(bits));
    }
  }
  halves.resize(halves.size() / 4 * 4);
  const size_t bags = halves.size() / 4;
  Lists lists;
  for (size_t bag = 0; bag < bags; ++bag) {
    lists.rows.push_back(static_cast<int64_t>(bag));
    lists.offsets.push_back(static_cast<int64_t>(bag) + 1);
  }
  for (const BagSumsKernel* kernel : KernelsOfThisProcessor()) {
    SCOPED_TRACE(kernel->name);
    std::vector<float> sums(halves.size());
    kernel->fp16({.table = reinterpret_cast<const std::byte*>(halves.data()),
                  .row_bytes = 8,
                  .columns = 4,
                  .rows = lists.rows.data(),
                  .offsets = lists.offsets.data(),
                  .bags = bags,
                  .sums = sums.data(),
                  .stride = 4});
    for (size_t i = 0; i < halves.size(); ++i) {
      const int exponent = (halves[i] >> 10) & 31;
      const int fraction = halves[i] & 1023;
      double value =
          exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
      if (exponent == 31) value = INFINITY;
      if (halves[i] & 0x8000) value = -value;
      ASSERT_EQ(sums[i], static_cast<float>(value)) << halves[i];
    }
  }
}

}  // namespace
}  // namespace embershard
