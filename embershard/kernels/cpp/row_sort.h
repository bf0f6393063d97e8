#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "embershard/kernels/cpp/row_update.h"

namespace embershard::kernels {

// Sorts by row, stably, in passes over at most 11 bits. `spare` is as long as `occurrences`;
// returns the one of the two that holds the result. Every row is less than `rows`.
inline std::span<Occurrence> SortByRow(std::span<Occurrence> occurrences,
                                       std::span<Occurrence> spare, uint64_t rows) {
  constexpr int kMostBits = 11;
  const int bits = std::bit_width(rows - 1);
  const int passes = (bits + kMostBits - 1) / kMostBits;
  for (int pass = 0; pass < passes; ++pass) {
    const int width = (bits + passes - 1) / passes;
    const auto digit = [&](const Occurrence& occurrence) {
      return (occurrence.row >> (pass * width)) & ((uint32_t{1} << width) - 1);
    };
    std::array<uint32_t, size_t{1} << kMostBits> next{};
    for (const Occurrence& occurrence : occurrences) ++next[digit(occurrence)];
    uint32_t sum = 0;
    for (uint32_t& count : std::span(next).first(size_t{1} << width)) {
      sum += std::exchange(count, sum);
    }
    for (const Occurrence& occurrence : occurrences) spare[next[digit(occurrence)]++] = occurrence;
    std::swap(occurrences, spare);
  }
  return occurrences;
}

}  // namespace embershard::kernels
