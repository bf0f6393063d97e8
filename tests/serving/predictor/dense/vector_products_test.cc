#include "dense/vector_products.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace embershard {
namespace {

constexpr size_t kExamples = 5;
constexpr size_t kOthers = 16;  // Floats behind what a call may write.
constexpr float kUntouched = -7;

// Vectors and their width, and how many they are multiplied with.
using Sizes = std::tuple<size_t, size_t, size_t>;

std::vector<float> Waves(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = std::sin(static_cast<float>(i) * 0.7F);
  return values;
}

// Rounded after each multiply-add, as the kernels do.
float Product(const float* left, const float* right, size_t dim) {
  float sum = 0;
  for (size_t k = 0; k < dim; ++k) sum = std::fma(left[k], right[k], sum);
  return sum;
}

class VectorProductsTest : public ::testing::TestWithParam<Sizes> {
 protected:
  void SetUp() override {
    if (UsableVectorProducts().empty()) GTEST_SKIP() << "no such processor";
  }
};

TEST_P(VectorProductsTest, PairsAreTheBitsOfALoopInOrderAndNothingBehindThem) {
  const auto [count, dim, unused] = GetParam();
  const std::vector<float> vectors = Waves(kExamples * count * dim);
  std::vector<float> expected;
  for (size_t example = 0; example < kExamples; ++example) {
    const float* const its = vectors.data() + example * count * dim;
    for (size_t i = 0; i < count; ++i) {
      for (size_t j = i + 1; j < count; ++j) {
        expected.push_back(Product(its + i * dim, its + j * dim, dim));
      }
    }
  }
  const size_t size = expected.size() + kOthers;
  expected.resize(size, kUntouched);
  for (const VectorProducts* kernel : UsableVectorProducts()) {
    std::vector<float> products(size, kUntouched);
    kernel->pairs({.vectors = vectors.data(),
                   .examples = kExamples,
                   .count = count,
                   .dim = dim,
                   .products = products.data()});
    EXPECT_EQ(products, expected);
  }
}

TEST_P(VectorProductsTest, CrossProductsAreTheBitsOfALoopAndNothingBehindThem) {
  const auto [count, dim, other_count] = GetParam();
  const std::vector<float> vectors = Waves(kExamples * count * dim);
  const std::vector<float> others = Waves(2 * other_count * dim);
  const std::vector<int64_t> row_of = {0, 0, 1, 1, 0};
  std::vector<float> expected;
  for (size_t example = 0; example < kExamples; ++example) {
    const float* const row =
        others.data() + static_cast<size_t>(row_of[example]) * other_count * dim;
    for (size_t i = 0; i < count; ++i) {
      for (size_t j = 0; j < other_count; ++j) {
        expected.push_back(
            Product(vectors.data() + (example * count + i) * dim, row + j * dim, dim));
      }
    }
  }
  const size_t size = expected.size() + kOthers;
  expected.resize(size, kUntouched);
  for (const VectorProducts* kernel : UsableVectorProducts()) {
    std::vector<float> products(size, kUntouched);
    kernel->cross({.vectors = vectors.data(),
                   .examples = kExamples,
                   .count = count,
                   .dim = dim,
                   .others = others.data(),
                   .row_of = row_of.data(),
                   .other_count = other_count,
                   .products = products.data()});
    EXPECT_EQ(products, expected);
  }
}

// A second call computes the outputs from kPackedOutputs on.
TEST_P(VectorProductsTest, LinearLayersAreTheBitsOfALoopAndNothingBehindThem) {
  const auto [count, dim, outputs] = GetParam();
  const size_t stride = outputs + 3;
  const std::vector<float> vectors = Waves(count * dim);
  const std::vector<float> weights = Waves(outputs * dim);
  const std::vector<float> bias = Waves(outputs);
  std::vector<float> expected(count * stride, kUntouched);
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = 0; j < outputs; ++j) {
      const float sum = Product(vectors.data() + i * dim, weights.data() + j * dim, dim) + bias[j];
      expected[i * stride + j] = sum < 0 ? 0 : sum;
    }
  }
  for (const VectorProducts* kernel : UsableVectorProducts()) {
    std::vector<float> packed((outputs + 15) / 16 * 16 * dim, kUntouched);
    kernel->pack(weights.data(), outputs, dim, packed.data());
    std::vector<float> products(count * stride, kUntouched);
    for (size_t first = 0; first < outputs; first += kPackedOutputs) {
      kernel->linear({.vectors = vectors.data(),
                      .count = count,
                      .dim = dim,
                      .packed = packed.data() + first * dim,
                      .bias = bias.data() + first,
                      .outputs = std::min(kPackedOutputs, outputs - first),
                      .relu = true,
                      .products = products.data() + first,
                      .stride = stride});
    }
    EXPECT_EQ(products, expected);
  }
}

// Rows of a tile that is not full, and widths that leave lanes over, are summed like all others.
TEST(LinearLayers, OfAnyNumberOfRowsAreTheBitsOfALoop) {
  constexpr size_t kMostRows = 33;
  for (const auto& [dim, outputs] : {std::pair<size_t, size_t>{1100, 70}, {26, 6}, {17, 33}}) {
    const std::vector<float> vectors = Waves(kMostRows * dim);
    const std::vector<float> weights = Waves(outputs * dim);
    std::vector<float> expected;
    for (size_t i = 0; i < kMostRows * outputs; ++i) {
      expected.push_back(Product(&vectors[i / outputs * dim], &weights[i % outputs * dim], dim));
    }
    for (const VectorProducts* kernel : UsableVectorProducts()) {
      std::vector<float> packed(2 * kPackedOutputs * dim);
      kernel->pack(weights.data(), outputs, dim, packed.data());
      for (size_t count = kMostRows; count > 0; --count) {
        std::vector<float> products(count * outputs);
        kernel->linear({.vectors = vectors.data(),
                        .count = count,
                        .dim = dim,
                        .packed = packed.data(),
                        .outputs = outputs,
                        .products = products.data(),
                        .stride = outputs});
        ASSERT_TRUE(std::ranges::equal(products, std::span(expected).first(products.size())))
            << count << " rows of " << dim;
      }
    }
  }
}

TEST(LinearLayers, KeepNaNAndNegativesWithoutReluAndHaveNoBiasIfThereIsNone) {
  const std::vector<float> vectors = {1, -2, std::nanf(""), 1};
  const std::vector<float> weights = {3, 2};
  for (const VectorProducts* kernel : UsableVectorProducts()) {
    std::vector<float> packed(16 * 2);
    kernel->pack(weights.data(), 1, 2, packed.data());
    for (const bool relu : {false, true}) {
      std::vector<float> products(2, kUntouched);
      kernel->linear({.vectors = vectors.data(),
                      .count = 2,
                      .dim = 2,
                      .packed = packed.data(),
                      .outputs = 1,
                      .relu = relu,
                      .products = products.data(),
                      .stride = 1});
      EXPECT_EQ(products[0], relu ? 0 : -1);
      EXPECT_TRUE(std::isnan(products[1]));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, VectorProductsTest,
                         ::testing::Combine(::testing::Values(1, 2, 7, 16, 17, 41, 65, 130),
                                            ::testing::Values(1, 4, 15, 16, 20, 64),
                                            ::testing::Values(1, 5, 16, 21, 70)),
                         [](const ::testing::TestParamInfo<Sizes>& sizes) {
                           return std::to_string(std::get<0>(sizes.param)) + "_of_" +
                                  std::to_string(std::get<1>(sizes.param)) + "_with_" +
                                  std::to_string(std::get<2>(sizes.param));
                         });

}  // namespace
}  // namespace embershard
