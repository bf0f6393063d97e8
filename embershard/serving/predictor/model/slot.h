// All buffers of one batch, for any model. The builder fills them, the model runs them, and then
// they are split into answers. Their memory is reused from batch to batch.
//
// A batch has R requests and B examples. A sparse input has R bags in request scope and B bags in
// example scope.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace embershard {

struct SlotSparse {
  std::vector<int64_t> rows;     // [total], kZeroRow allowed.
  std::vector<int64_t> offsets;  // [bags + 1], from 0 to total.
  std::vector<float> weights;    // [total] if the input is weighted, else empty.
};

struct Slot {
  explicit Slot(size_t number_of_slot = 0) : number(number_of_slot) {}

  // Number of the model's slot that runs the batch, less than Model::slots().
  const size_t number;

  // Filled by the builder.
  size_t requests = 0;                      // R
  size_t examples = 0;                      // B
  std::vector<float> request_dense;         // [R, Schema::request_dense_columns]
  std::vector<float> example_dense;         // [B, Schema::example_dense_columns]
  std::vector<SlotSparse> sparse;           // One for each of Schema::sparse.
  std::vector<int64_t> request_of_example;  // [B], ascending.

  // Filled by the lookup.
  std::vector<float> request_pooled;  // [R, Schema::request_pooled_columns]
  std::vector<float> example_pooled;  // [B, Schema::example_pooled_columns]

  std::vector<std::vector<float>> sequences;  // One per Schema::sequences, each [total, dim].

  // Filled by the dense program, in the order of Schema::outputs, each [R or B, width], row-major.
  std::vector<std::vector<float>> outputs;

  uint32_t lookup_us = 0;
  uint32_t dense_us = 0;
};

}  // namespace embershard
