#include "lookup/bag_sums.h"

#include <gtest/gtest.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

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

// The narrowest first, as the processor itself says.
std::vector<const BagSumsKernel*> KernelsOfThisProcessor() {
  std::vector<const BagSumsKernel*> kernels = {&kScalarBagSums};
#if defined(__x86_64__)
  uint32_t eax = 0, ebx = 0, basic = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &basic, &edx) == 0) return kernels;
  constexpr uint32_t kSystemSavesVectors = bit_OSXSAVE;
  if ((basic & kSystemSavesVectors) == 0) return kernels;
  uint32_t saved = 0;  // Bits of XCR0: 1 and 2 are AVX's registers, 5 to 7 those of AVX-512.
  __asm__("xgetbv" : "=a"(saved), "=d"(edx) : "c"(0));
  uint32_t extended = 0, ecx = 0;
  __get_cpuid_count(7, 0, &eax, &extended, &ecx, &edx);
  const auto has = [](uint32_t bits, uint32_t all) { return (bits & all) == all; };
  if (!has(saved, 0x06) || !has(basic, bit_FMA | bit_F16C) || !has(extended, bit_AVX2)) {
    return kernels;
  }
  kernels.push_back(&kAvx2BagSums);
  if (has(saved, 0xe6) && has(extended, bit_AVX512F | bit_AVX512BW | bit_AVX512VL)) {
    kernels.push_back(&kAvx512BagSums);
    if (has(ecx, bit_AVX512VNNI)) kernels.push_back(&kVnniBagSums);
  }
#endif
  return kernels;
}

TEST(BagSums, TheWidestKernelOfTheProcessorIsTheBest) {
  EXPECT_EQ(&BestBagSums(), KernelsOfThisProcessor().back());
}

void SumWith(const BagSumsKernel& kernel, WeightType weights, const BagSumsCall& call) {
  if (weights == WeightType::kInt8) kernel.int8(call);
  if (weights == WeightType::kInt4) kernel.int4(call);
  if (weights == WeightType::kFp16) kernel.fp16(call);
  if (weights == WeightType::kFp32) kernel.fp32(call);
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

double ValueOfHalf(uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const int fraction = half & 1023;
  double size =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  if (exponent == 31) size = INFINITY;
  return (half & 0x8000) != 0 ? -size : size;
}

uint16_t HalfAt(const TestTable& table, int64_t row, int64_t byte) {
  const uint8_t* at = table.bytes.data() + row * table.row_bytes + byte;
  return static_cast<uint16_t>(at[0] | (at[1] << 8));
}

double CodeAt(const TestTable& table, int64_t row, size_t column) {
  const uint8_t* codes = table.bytes.data() + row * table.row_bytes + 4;
  if (table.weights == WeightType::kInt8) return codes[column];
  return (codes[column / 2] >> (column % 2 * 4)) & 15;
}

// Adds up to 32 rows of codes to `sum` as bag_sums.h describes. Doubles hold every whole number.
float AddGroup(float sum, const TestTable& table, const std::vector<int64_t>& rows, size_t column) {
  double largest = 0;
  for (const int64_t row : rows) {
    const double scale = ValueOfHalf(HalfAt(table, row, 0));
    if (!std::isinf(scale)) largest = std::max(largest, scale);
  }
  // The largest scale is below 2^15 units. A unit is at least the smallest positive half.
  const double unit = std::max(std::ldexp(1, std::ilogb(std::max(largest, 1e-9)) - 14), 0x1p-24);
  double whole = 0;
  float others = 0;
  std::array<float, 8> biases = {};
  size_t alike = 0;
  for (const int64_t row : rows) {
    const double scale = ValueOfHalf(HalfAt(table, row, 0));
    const double bias = ValueOfHalf(HalfAt(table, row, 2));
    if (scale >= 0 && !std::isinf(scale) && std::fmod(scale, unit) == 0) {
      whole += scale / unit * CodeAt(table, row, column);
      biases[alike++ % 8] += static_cast<float>(bias);
    } else {
      others += static_cast<float>(scale * CodeAt(table, row, column) + bias);
    }
  }
  for (const size_t half : {4, 2, 1}) {
    for (size_t i = 0; i < half; ++i) biases[i] += biases[i + half];
  }
  sum += std::fma(static_cast<float>(whole), static_cast<float>(unit), biases[0]);
  return alike < rows.size() ? sum + others : sum;
}

// The sum that bag_sums.h promises, rounded at the places that it names.
float PlainSum(const TestTable& table, const Lists& lists, size_t bag, size_t column, bool weighted,
               bool mean) {
  const auto begin = static_cast<size_t>(lists.offsets[bag]);
  const auto end = static_cast<size_t>(lists.offsets[bag + 1]);
  const bool codes = (table.weights == WeightType::kInt8 || table.weights == WeightType::kInt4) &&
                     end - begin >= 8;
  float sum = 0;
  for (size_t i = begin; i < end;) {
    if (codes && !weighted) {
      const size_t size = std::min<size_t>(end - i, 32);
      const auto* first = lists.rows.data() + i;
      sum = AddGroup(sum, table, {first, first + size}, column);
      i += size;
      continue;
    }
    const auto value = static_cast<float>(table.row(lists.rows[i])[column]);
    sum = weighted ? std::fma(lists.weights[i], value, sum) : sum + value;
    ++i;
  }
  const size_t length = end - begin;
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
  for (const size_t longest : {size_t{1}, size_t{12}, size_t{90}}) {
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
                     .rows_far = mean ? 16 : 0,
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
  for (const WeightType weights :
       {WeightType::kInt8, WeightType::kInt4, WeightType::kFp16, WeightType::kFp32}) {
    // Dims around vectors of 8 and 16, and around the 8 vectors that are summed at once.
    for (const int64_t dim : {1,  2,  3,  4,  5,  6,  7,   8,   9,   10,  11,  12,  13,  15,
                              16, 17, 20, 60, 64, 68, 100, 124, 127, 128, 129, 132, 133, 260}) {
      cases.push_back({weights, dim});
    }
  }
  return cases;
}

std::string CaseName(const ::testing::TestParamInfo<Case>& info) {
  constexpr std::array kNames = {"int8", "int4", "fp16", "fp32"};
  return std::string(kNames[static_cast<size_t>(info.param.weights)]) + "_dim_" +
         std::to_string(info.param.dim);
}

INSTANTIATE_TEST_SUITE_P(BagSums, EveryDim, ::testing::ValuesIn(Cases()), CaseName);

// Zero, less than the smallest normal number, negative, the largest, and neighbours of powers of
// two.
TEST(BagSums, ScalesOfAllSizesAreSummedAsPromised) {
  constexpr std::array<uint16_t, 14> kScales = {0x0000, 0x0001, 0x03FF, 0x0400, 0x07FF,
                                                0x1400, 0x13FF, 0x23FF, 0x2400, 0x27FF,
                                                0x3C00, 0x7BFF, 0x8001, 0xBC00};
  TestTable table = MakeTable("table", WeightType::kInt8, 14, 20, 5);
  for (size_t row = 0; row < kScales.size(); ++row) {
    table.bytes[row * 24] = static_cast<uint8_t>(kScales[row] & 0xff);
    table.bytes[row * 24 + 1] = static_cast<uint8_t>(kScales[row] >> 8);
  }
  std::mt19937 random(2);
  constexpr size_t kBags = 400;
  Lists lists;
  for (size_t bag = 0; bag < kBags; ++bag) {
    // Few kinds in a bag, or all that have 0x7BFF would be alike.
    const std::array<int64_t, 3> kinds = {static_cast<int64_t>(random() % 14),
                                          static_cast<int64_t>(random() % 14),
                                          static_cast<int64_t>(random() % 14)};
    for (size_t i = 8 + random() % 40; i > 0; --i) lists.rows.push_back(kinds[random() % 3]);
    lists.offsets.push_back(static_cast<int64_t>(lists.rows.size()));
  }
  for (const BagSumsKernel* kernel : KernelsOfThisProcessor()) {
    SCOPED_TRACE(kernel->name);
    std::vector<float> sums(kBags * 20);
    kernel->int8({.table = reinterpret_cast<const std::byte*>(table.bytes.data()),
                  .row_bytes = 24,
                  .columns = 20,
                  .rows = lists.rows.data(),
                  .offsets = lists.offsets.data(),
                  .bags = kBags,
                  .sums = sums.data(),
                  .stride = 20});
    for (size_t i = 0; i < sums.size(); ++i) {
      ASSERT_EQ(sums[i], PlainSum(table, lists, i / 20, i % 20, false, false)) << "bag " << i / 20;
    }
  }
}

// Values that float32 must round, unlike those of the test tables. In double they are exact.
TEST(BagSums, AValueIsRoundedOnce) {
  std::mt19937 random(3);
  for (int i = 0; i < 2000; ++i) {
    const auto scale = static_cast<uint16_t>(0x1000 + random() % 0x4000);  // 2^-11 .. 2^5
    const auto bias = static_cast<uint16_t>(0x9000 + random() % 0x4000);   // The same, negative.
    std::array<uint8_t, 8> row = {
        static_cast<uint8_t>(scale & 0xff), static_cast<uint8_t>(scale >> 8),
        static_cast<uint8_t>(bias & 0xff), static_cast<uint8_t>(bias >> 8)};
    for (size_t d = 4; d < 8; ++d) row[d] = static_cast<uint8_t>(random());
    const int64_t rows = 0;
    const std::array<int64_t, 2> offsets = {0, 1};
    for (const BagSumsKernel* kernel : KernelsOfThisProcessor()) {
      std::array<float, 4> values;
      kernel->int8({.table = reinterpret_cast<const std::byte*>(row.data()),
                    .row_bytes = row.size(),
                    .columns = 4,
                    .rows = &rows,
                    .offsets = offsets.data(),
                    .bags = 1,
                    .sums = values.data(),
                    .stride = 4});
      for (size_t d = 0; d < 4; ++d) {
        ASSERT_EQ(values[d],
                  static_cast<float>(ValueOfHalf(scale) * row[4 + d] + ValueOfHalf(bias)))
            << kernel->name;
      }
    }
  }
}

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
      ASSERT_EQ(sums[i], static_cast<float>(ValueOfHalf(halves[i]))) << halves[i];
    }
  }
}

}  // namespace
}  // namespace embershard
