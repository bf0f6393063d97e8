#pragma once

#include <ATen/core/TensorBody.h>

#include <exception>
#include <span>
#include <string>
#include <vector>

#include "dense/dense_program.h"

namespace embershard {

// The error's message without torch's stack trace. Bytes other than newlines and printable ASCII
// are written as \xNN.
std::string Reason(const std::exception& error);

// Views of the inputs of one scope: dense, pooled, then the values and offsets of each sequence.
// `device` is the device of the inputs' memory.
std::vector<at::Tensor> InputsOfScope(const Schema& schema, Scope scope,
                                      const DenseProgramInputs& inputs,
                                      at::Device device = at::kCPU);

at::Tensor RequestOfExample(const DenseProgramInputs& inputs, at::Device device = at::kCPU);

// Fails with kInternal if the results of a program do not match the schema.
Status CheckOutputs(const Schema& schema, std::span<const at::Tensor> results,
                    const DenseProgramInputs& inputs);

// Copies `results` in the order of Schema::outputs. A tensor that is not defined() stands for an
// output that the program lacks. Fails with kInternal if they do not match the schema.
Status CopyOutputs(const Schema& schema, std::span<const at::Tensor> results,
                   const DenseProgramInputs& inputs, std::vector<std::vector<float>>* outputs);

// Runs the program with inputs of zeros, R = 2 and B = 3. This reports an output that is missing,
// or has a wrong shape or scope, before the first request.
Status TryOnce(DenseProgram& program, const Schema& schema);

}  // namespace embershard
