// Batches as tensors. Includes torch.

#pragma once

#include <ATen/core/TensorBody.h>

#include <exception>
#include <span>
#include <string>
#include <vector>

#include "dense/dense_program.h"

namespace embershard {

// What went wrong, without the stack trace that torch's messages carry. Bytes that are no printable
// ASCII are written as \xNN.
std::string Reason(const std::exception& error);

// Views of the inputs of one scope: dense, pooled, then values and offsets of each of its
// sequences. `device`: where the inputs lie.
std::vector<at::Tensor> InputsOfScope(const Schema& schema, Scope scope,
                                      const DenseProgramInputs& inputs,
                                      at::Device device = at::kCPU);

at::Tensor RequestOfExample(const DenseProgramInputs& inputs, at::Device device = at::kCPU);

// kInternal: a program's results are not as the schema says. `results` as CopyOutputs() takes them.
Status CheckOutputs(const Schema& schema, std::span<const at::Tensor> results,
                    const DenseProgramInputs& inputs);

// Copies a program's results into `outputs`. `results` are in the order of Schema::outputs, and
// undefined if the program has no such output. kInternal: they are not as the schema says.
Status CopyOutputs(const Schema& schema, std::span<const at::Tensor> results,
                   const DenseProgramInputs& inputs, std::vector<std::vector<float>>* outputs);

// Runs zeros at R = 2, B = 3: an output that is missing, or has a wrong shape or scope, shows
// before the first request.
Status TryOnce(DenseProgram& program, const Schema& schema);

}  // namespace embershard
