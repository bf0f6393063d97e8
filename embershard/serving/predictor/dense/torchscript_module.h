#pragma once

#include <torch/csrc/jit/api/module.h>

#include <memory>
#include <vector>

#include "base/status.h"
#include "dense/dense_program.h"

namespace embershard {

// Loads and freezes a program. Fails with kBadPackage if forward() does not have the signature in
// docs/format.md. Throws torch's exceptions.
Result<torch::jit::Module> LoadModule(ProgramBytes program, at::Device device);

// Calls forward() with inputs in the memory of `device`. Returns the results in the order of
// Schema::outputs. The tensor of an output that the program lacks is not defined(), which
// CheckOutputs() reports. Throws torch's exceptions.
std::vector<at::Tensor> CallForward(torch::jit::Method* forward, const Schema& schema,
                                    const DenseProgramInputs& inputs, at::Device device);

// Makes a frozen graph run on `device` by replacing constants that are tensors or devices. Fails
// with kBadPackage if the device cannot run an operation, and names it.
Status MoveGraph(const std::shared_ptr<torch::jit::Graph>& graph, at::Device device);

// Makes a graph compute this in bfloat16:
//
//   bfloat16(linear(float32(bfloat16(x)), weight, bias))
//
// Only if weight and bias are constants and rounding the weight to bfloat16 does not change it. The
// bias is rounded.
void RunLinearsInBfloat16(const std::shared_ptr<torch::jit::Graph>& graph);

class DeviceProgram {
 public:
  // Throws torch's exceptions.
  DeviceProgram(torch::jit::Module module, const Schema& schema, at::Device device);

  // Writes the outputs one after another, in the order of the schema. Throws torch's exceptions,
  // and std::runtime_error for an output of another shape than the schema's.
  void Run(const DenseProgramInputs& inputs, float* outputs);

 private:
  const Schema schema_;
  const at::Device device_;
  const torch::jit::Module module_;
  torch::jit::Method forward_;
};

// Throws torch's exceptions.
Result<std::unique_ptr<DeviceProgram>> LoadDeviceProgram(ProgramBytes program, const Schema& schema,
                                                         at::Device device);

}  // namespace embershard
