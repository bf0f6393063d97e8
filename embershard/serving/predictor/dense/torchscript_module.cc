#include "dense/torchscript_module.h"

#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "dense/tensors.h"

namespace embershard {
namespace {

// Expects forward(List[Tensor], List[Tensor], Tensor) -> Dict[str, Tensor].
Status CheckSignature(const c10::FunctionSchema& forward) {
  const auto tensors = c10::ListType::ofTensors();
  const auto tensor = c10::TensorType::get();
  const std::vector<c10::TypePtr> expected = {tensors, tensors, tensor};
  const auto outputs = c10::DictType::create(c10::StringType::get(), tensor);
  bool matches = forward.arguments().size() == expected.size() + 1 &&
                 forward.returns().size() == 1 && *forward.returns()[0].type() == *outputs;
  for (size_t i = 0; matches && i < expected.size(); ++i) {
    matches = *forward.arguments()[i + 1].type() == *expected[i];
  }
  if (matches) return {};
  std::ostringstream signature;
  signature << forward;
  return BadPackage(
      "expected forward(self, List[Tensor], List[Tensor], Tensor) -> Dict[str, Tensor], got " +
      signature.str());
}

}  // namespace

Result<torch::jit::Module> LoadModule(ProgramBytes program, at::Device device) {
  const std::string where = program.name + ": ";
  std::istringstream bytes(std::move(program.bytes));
  torch::jit::Module module = torch::jit::load(bytes, device);
  const auto forward = module.find_method("forward");
  if (!forward) return BadPackage(where + "expected a method 'forward', got none");
  const Status signature = CheckSignature(forward->function().getSchema());
  if (!signature.ok()) return BadPackage(where + signature.message());
  module.eval();
  return torch::jit::freeze(module);
}

std::vector<at::Tensor> CallForward(torch::jit::Method* forward, const Schema& schema,
                                    const DenseProgramInputs& inputs, at::Device device) {
  // The frozen graph is already optimized. The executor's own optimizations would compile during
  // the second run, without a measurable gain.
  const torch::jit::GraphOptimizerEnabledGuard no_profiling(false);
  const auto results =
      (*forward)({c10::List<at::Tensor>(InputsOfScope(schema, Scope::kRequest, inputs, device)),
                  c10::List<at::Tensor>(InputsOfScope(schema, Scope::kExample, inputs, device)),
                  RequestOfExample(inputs, device)})
          .toGenericDict();
  std::vector<at::Tensor> outputs(results.size());
  for (size_t i = 0; i < std::min(outputs.size(), schema.outputs.size()); ++i) {
    const auto output = results.find(schema.outputs[i].name);
    if (output != results.end()) outputs[i] = output->value().toTensor();
  }
  return outputs;
}

}  // namespace embershard
