// TorchScript programs as modules of torch. Includes torch.

#pragma once

#include <torch/csrc/jit/api/module.h>

#include <memory>
#include <vector>

#include "base/status.h"
#include "dense/dense_program.h"

namespace embershard {

// Loads a program to a device and freezes it. kBadPackage: its forward() has another signature than
// docs/format.md describes. Throws what torch throws.
Result<torch::jit::Module> LoadModule(ProgramBytes program, at::Device device);

// Calls forward() with inputs in the memory of `device`. Returns its results in the order of
// Schema::outputs, undefined if the program has no such output. Throws what torch throws.
std::vector<at::Tensor> CallForward(torch::jit::Method* forward, const Schema& schema,
                                    const DenseProgramInputs& inputs, at::Device device);

// Has a frozen graph compute on `device`: constants that are tensors or devices are replaced.
// kBadPackage names an operation that the device cannot run.
Status MoveGraph(const std::shared_ptr<torch::jit::Graph>& graph, at::Device device);

// Runs in bfloat16
//
//   bfloat16(linear(float32(bfloat16(x)), weight, bias))
//
// if weight and bias are constants and the weight is bfloat16 by value. The bias is rounded.
void RunLinearsInBfloat16(const std::shared_ptr<torch::jit::Graph>& graph);

// A program whose inputs and outputs lie in the memory of a device.
class DeviceProgram {
 public:
  // Throws what torch throws.
  DeviceProgram(torch::jit::Module module, const Schema& schema, at::Device device);

  // Writes the outputs one after another, in the order of the schema. Throws what torch throws, and
  // std::runtime_error if an output has another shape than the schema says.
  void Run(const DenseProgramInputs& inputs, float* outputs);

 private:
  const Schema schema_;
  const at::Device device_;
  const torch::jit::Module module_;
  torch::jit::Method forward_;
};

// Throws what torch throws.
Result<std::unique_ptr<DeviceProgram>> LoadDeviceProgram(ProgramBytes program, const Schema& schema,
                                                         at::Device device);

}  // namespace embershard
