#include "embershard/kernels/cpp/row_update.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <tuple>
#include <vector>

#include "base/core_count.h"
#include "embershard/kernels/cpp/row_sort.h"

namespace embershard::kernels {
namespace {

std::vector<Occurrence> RandomOccurrences(size_t count, uint32_t rows, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Occurrence> occurrences;
  for (uint32_t place = 0; place < count; ++place) {
    occurrences.push_back({static_cast<uint32_t>(random() % rows), place, 1.0f});
  }
  return occurrences;
}

TEST(RowSort, OrdersByRowAndKeepsTheOrderOfEachRow) {
  for (const uint32_t rows : {1u, 2u, 2048u, 2049u, 70'000u, 4'294'967'295u}) {
    for (const size_t count : {0u, 1u, 1000u}) {
      std::vector<Occurrence> occurrences = RandomOccurrences(count, rows, rows), spare(count);
      std::vector<Occurrence> expected = occurrences;
      std::stable_sort(expected.begin(), expected.end(),
                       [](const auto& one, const auto& other) { return one.row < other.row; });
      const auto sorted = SortByRow(occurrences, spare, rows);
      EXPECT_TRUE(std::equal(sorted.begin(), sorted.end(), expected.begin(), expected.end(),
                             [](const auto& one, const auto& other) {
                               return one.row == other.row && one.place == other.place;
                             }))
          << rows << " rows, " << count << " occurrences";
    }
  }
}

using Bytes = std::vector<std::byte>;

// The weights and the state after a step of `update`.
std::tuple<Bytes, std::vector<float>> After(UpdateRows update, Optimizer optimizer, int64_t dim,
                                            bool is_half) {
  constexpr uint32_t kRows = 50;
  std::mt19937 random(7);
  std::uniform_real_distribution<float> uniform(-1, 1);
  Bytes weights(kRows * dim * (is_half ? 2 : 4));
  if (is_half) {
    for (size_t at = 0; at < weights.size(); at += 2) {  // Halves of 1 to 2.
      const uint16_t half = 0x3c00 + random() % 1024;
      std::memcpy(&weights[at], &half, sizeof(half));
    }
  } else {
    for (size_t at = 0; at < weights.size(); at += 4) {
      const float value = uniform(random);
      std::memcpy(&weights[at], &value, sizeof(value));
    }
  }
  std::vector<float> state(kRows * dim), gradients;
  std::vector<Occurrence> sorted = RandomOccurrences(200, kRows, 3), spare(200);
  for (Occurrence& occurrence : sorted) {
    occurrence.weight = occurrence.place % 3 == 0 ? 1.0f : uniform(random);
    occurrence.place *= static_cast<uint32_t>(dim / 4);
  }
  for (int64_t value = 0; value < 200 * dim; ++value) gradients.push_back(uniform(random));
  update({weights.data(), state.data(), dim, is_half}, {optimizer, 0.1f, 1e-8f}, gradients.data(),
         SortByRow(sorted, spare, kRows));
  return {weights, state};
}

TEST(RowUpdate, EveryInstructionSetGivesTheSameBits) {
#if defined(__x86_64__)
  if (!ProcessorFlags().contains("avx2")) GTEST_SKIP() << "needs a processor with AVX2";
  for (const Optimizer optimizer :
       {Optimizer::kSgd, Optimizer::kRowwiseAdagrad, Optimizer::kAdagrad}) {
    for (const int64_t dim : {4, 20, 64, 128}) {
      for (const bool is_half : {false, true}) {
        EXPECT_EQ(After(UpdateRowsBaseline, optimizer, dim, is_half),
                  After(UpdateRowsAvx2, optimizer, dim, is_half))
            << "optimizer " << static_cast<int>(optimizer) << ", dim " << dim << ", fp16 "
            << is_half;
      }
    }
  }
#else
  GTEST_SKIP() << "needs an x86-64 processor";
#endif
}

TEST(RowUpdate, SumsTheGradientsOfARowBeforeItsStep) {
  std::vector<float> weights = {1, 1, 1, 1, 5, 5, 5, 5}, state = {0, 9};
  const std::vector<float> gradients = {1, 2, 3, 4, 1, 1, 1, 1};
  // Row 0: gradient 1 * {1, 2, 3, 4} + 2 * {1, 1, 1, 1}; the mean of its squares is 21.5.
  const std::vector<Occurrence> sorted = {{0, 0, 1.0f}, {0, 1, 2.0f}};
  FastestUpdateRows()({reinterpret_cast<std::byte*>(weights.data()), state.data(), 4, false},
                      {Optimizer::kRowwiseAdagrad, 0.5f, 0.0f}, gradients.data(), sorted);
  EXPECT_EQ(state, (std::vector<float>{21.5f, 9}));
  for (int column = 0; column < 4; ++column) {
    EXPECT_NEAR(weights[column], 1 - 0.5 * (column + 3) / std::sqrt(21.5), 1e-6);
    EXPECT_EQ(weights[4 + column], 5);
  }
}

}  // namespace
}  // namespace embershard::kernels
