// The TorchScript programs of ../make_test_program.py, which says what they compute, frozen.

#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/linspace.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "testing/paths.h"

namespace embershard {

inline torch::jit::Module Program(const std::string& name) {
  const auto file = testing::TestPrograms() / (name + ".pt");
  torch::jit::Module module = torch::jit::load(file.string());
  module.eval();
  return torch::jit::freeze(module);
}

constexpr int64_t kWidth = 64;  // Columns of the programs' input.

// A [rows, kWidth] input.
inline at::Tensor Rows(int64_t rows) {
  return at::linspace(-3, 3, rows * kWidth).sin().reshape({rows, kWidth});
}

// How many nodes of a kind its graph has.
inline int Count(const torch::jit::Module& module, const std::string& kind) {
  int count = 0;
  for (const auto* node : module.get_method("forward").graph()->nodes()) {
    count += node->kind().toQualString() == kind;
  }
  return count;
}

// An output of a program whose only input is the rows of examples.
inline at::Tensor Score(torch::jit::Module& module, const at::Tensor& rows,
                        const char* name = "score") {
  const c10::List<at::Tensor> none;
  const c10::List<at::Tensor> example({rows});
  return module.forward({none, example, rows}).toGenericDict().at(name).toTensor();
}

}  // namespace embershard
