// The update of rows by the gradients of the bags that hold them: the second half of a backward
// pass of fused tables on CPU. Free of torch.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace embershard::kernels {

// One id of a bag.
struct Occurrence {
  uint32_t row;    // Of the table.
  uint32_t place;  // The gradient of its bag begins at float 4 * place.
  float weight;    // What the row was multiplied by.
};

enum class Optimizer { kSgd, kRowwiseAdagrad, kAdagrad };

struct Step {
  Optimizer optimizer;
  float learning_rate;
  float eps;
};

// The weights of one table, float or fp16 [rows, dim], and the state of its optimizer: float [rows]
// or [rows, dim], null for SGD. dim is a multiple of 4.
struct TableRows {
  std::byte* weights;
  float* state;
  int64_t dim;
  bool is_half;
};

// Applies one step to each row of `sorted`: occurrences by row, those of one row in the order in
// which their gradients are summed. Every instruction set gives the same bits.
using UpdateRows = void (*)(const TableRows& table, const Step& step, const float* gradients,
                            std::span<const Occurrence> sorted);

void UpdateRowsBaseline(const TableRows& table, const Step& step, const float* gradients,
                        std::span<const Occurrence> sorted);
void UpdateRowsAvx2(const TableRows& table, const Step& step, const float* gradients,
                    std::span<const Occurrence> sorted);

// The fastest that this processor runs.
UpdateRows FastestUpdateRows();

}  // namespace embershard::kernels
