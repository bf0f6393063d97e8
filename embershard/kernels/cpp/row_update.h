// Applies an optimizer to rows of fused tables on CPU, in their backward pass. Does not use torch.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace embershard::kernels {

struct Occurrence {
  uint32_t row;    // Row in its table.
  uint32_t place;  // The bag's gradient begins at float 4 * place.
  float weight;    // Factor of the row in the bag's sum.
};

enum class Optimizer { kSgd, kRowwiseAdagrad, kAdagrad };

struct Step {
  Optimizer optimizer;
  float learning_rate;
  float eps;
};

// One table: weights, float or fp16 [rows, dim], and optimizer state, float [rows] or [rows, dim];
// null for SGD. dim is a multiple of 4.
struct TableRows {
  std::byte* weights;
  float* state;
  int64_t dim;
  bool is_half;
};

// Applies one step to each distinct row. `sorted` is ordered by row; gradients of one row are
// summed in its order. Every instruction set returns the same bits.
using UpdateRows = void (*)(const TableRows& table, const Step& step, const float* gradients,
                            std::span<const Occurrence> sorted);

void UpdateRowsBaseline(const TableRows& table, const Step& step, const float* gradients,
                        std::span<const Occurrence> sorted);
void UpdateRowsAvx2(const TableRows& table, const Step& step, const float* gradients,
                    std::span<const Occurrence> sorted);

UpdateRows FastestUpdateRows();

}  // namespace embershard::kernels
