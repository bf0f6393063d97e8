// Loops of row_update.h in plain C++, which compilers vectorize. Each instruction set has one file
// that includes this and is compiled without fused multiply-adds, so that all sets round alike.
//
// `H` converts 4 fp16 weights: Load(const std::byte*, float*) and Store(const float*, std::byte*).

#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "embershard/kernels/cpp/row_update.h"

namespace embershard::kernels {
namespace {

constexpr int64_t kLane = 16;     // Partial sums of a sum of squares, for any vector width.
constexpr size_t kRowsAhead = 6;  // Number of occurrences to prefetch rows for.
constexpr int64_t kLineBytes = 64;

inline void Prefetch(const void* data, int64_t bytes) {
  const char* at = static_cast<const char*>(data);
  for (int64_t byte = 0; byte < bytes; byte += kLineBytes) __builtin_prefetch(at + byte, 1);
}

inline float SumOfSquares(const float* values, int64_t dim) {
  float partial[kLane] = {};
  int64_t column = 0;
  for (; column + kLane <= dim; column += kLane) {
    for (int64_t lane = 0; lane < kLane; ++lane) {
      partial[lane] += values[column + lane] * values[column + lane];
    }
  }
  for (int64_t lane = 0; column + lane < dim; ++lane) {
    partial[lane] += values[column + lane] * values[column + lane];
  }
  for (int64_t half = kLane / 2; half > 0; half /= 2) {
    for (int64_t lane = 0; lane < half; ++lane) partial[lane] += partial[lane + half];
  }
  return partial[0];
}

// Computes sums = weight * values, or sums += weight * values.
template <bool kAdd>
void Scaled(float* __restrict sums, const float* __restrict values, float weight, int64_t dim) {
  for (int64_t column = 0; column < dim; ++column) {
    sums[column] = kAdd ? sums[column] + weight * values[column] : weight * values[column];
  }
}

template <Optimizer kOptimizer>
void ApplyStep(float* __restrict weights, float* __restrict state, const float* __restrict gradient,
               int64_t dim, const Step& step) {
  if constexpr (kOptimizer == Optimizer::kAdagrad) {
    for (int64_t column = 0; column < dim; ++column) {
      state[column] += gradient[column] * gradient[column];
      weights[column] -=
          step.learning_rate * gradient[column] / (std::sqrt(state[column]) + step.eps);
    }
  } else {
    float rate = step.learning_rate;
    if constexpr (kOptimizer == Optimizer::kRowwiseAdagrad) {
      *state += SumOfSquares(gradient, dim) / static_cast<float>(dim);
      rate /= std::sqrt(*state) + step.eps;
    }
    for (int64_t column = 0; column < dim; ++column) weights[column] -= rate * gradient[column];
  }
}

template <class H, Optimizer kOptimizer>
void UpdateHalves(std::byte* weights, float* state, const float* gradient, int64_t dim,
                  const Step& step, float* floats) {
  for (int64_t column = 0; column < dim; column += 4)
    H::Load(weights + 2 * column, floats + column);
  ApplyStep<kOptimizer>(floats, state, gradient, dim, step);
  for (int64_t column = 0; column < dim; column += 4) {
    H::Store(floats + column, weights + 2 * column);
  }
}

template <class H, Optimizer kOptimizer>
void UpdateAll(const TableRows& table, const Step& step, const float* gradients,
               std::span<const Occurrence> sorted) {
  const int64_t dim = table.dim;
  const int64_t row_bytes = dim * (table.is_half ? 2 : 4);
  constexpr bool kByValue = kOptimizer == Optimizer::kAdagrad;
  const auto state_of = [&](uint32_t row) {
    return kOptimizer == Optimizer::kSgd ? nullptr : table.state + (kByValue ? row * dim : row);
  };
  std::vector<float> sums(dim), floats(table.is_half ? dim : 0);
  for (size_t begin = 0; begin < sorted.size();) {
    const uint32_t row = sorted[begin].row;
    const float* gradient = nullptr;
    size_t end = begin;
    for (; end < sorted.size() && sorted[end].row == row; ++end) {
      if (end + kRowsAhead < sorted.size()) {
        const Occurrence& next = sorted[end + kRowsAhead];
        Prefetch(gradients + int64_t{4} * next.place, dim * 4);
        if (next.row != sorted[end + kRowsAhead - 1].row) {
          Prefetch(table.weights + next.row * row_bytes, row_bytes);
          if constexpr (kOptimizer != Optimizer::kSgd) {
            Prefetch(state_of(next.row), kByValue ? dim * 4 : 4);
          }
        }
      }
      const float* of_bag = gradients + int64_t{4} * sorted[end].place;
      const float weight = sorted[end].weight;
      if (end > begin) {
        if (gradient != sums.data()) Scaled<false>(sums.data(), gradient, 1, dim);
        Scaled<true>(sums.data(), of_bag, weight, dim);
        gradient = sums.data();
      } else if (weight == 1) {
        gradient = of_bag;
      } else {
        Scaled<false>(sums.data(), of_bag, weight, dim);
        gradient = sums.data();
      }
    }
    std::byte* weights = table.weights + row * row_bytes;
    if (table.is_half) {
      UpdateHalves<H, kOptimizer>(weights, state_of(row), gradient, dim, step, floats.data());
    } else {
      ApplyStep<kOptimizer>(reinterpret_cast<float*>(weights), state_of(row), gradient, dim, step);
    }
    begin = end;
  }
}

template <class H>
void UpdateBy(const TableRows& table, const Step& step, const float* gradients,
              std::span<const Occurrence> sorted) {
  switch (step.optimizer) {
    case Optimizer::kSgd:
      return UpdateAll<H, Optimizer::kSgd>(table, step, gradients, sorted);
    case Optimizer::kRowwiseAdagrad:
      return UpdateAll<H, Optimizer::kRowwiseAdagrad>(table, step, gradients, sorted);
    case Optimizer::kAdagrad:
      return UpdateAll<H, Optimizer::kAdagrad>(table, step, gradients, sorted);
  }
}

}  // namespace
}  // namespace embershard::kernels
