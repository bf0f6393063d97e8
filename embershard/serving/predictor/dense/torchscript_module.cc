#include "dense/torchscript_module.h"

#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "dense/tensors.h"

namespace embershard {
namespace {

// forward(List[Tensor], List[Tensor], Tensor) -> Dict[str, Tensor]
Status CheckSignature(const c10::FunctionSchema& forward) {
  const auto tensors = c10::ListType::ofTensors();
  const auto tensor = c10::TensorType::get();
  const std::vector<c10::TypePtr> expected = {tensors, tensors, tensor};
  const auto outputs = c10::DictType::create(c10::StringType::get(), tensor);
  bool fits = forward.arguments().size() == expected.size() + 1 && forward.returns().size() == 1 &&
              *forward.returns()[0].type() == *outputs;
  for (size_t i = 0; fits && i < expected.size(); ++i) {
    fits = *forward.arguments()[i + 1].type() == *expected[i];
  }
  if (fits) return {};
  std::ostringstream got;
  got << forward;
  return BadPackage(
      "expected forward(self, List[Tensor], List[Tensor], Tensor) -> Dict[str, Tensor], got " +
      got.str());
}

}  // namespace

Result<torch::jit::Module> LoadModule(ProgramBytes program, at::Device device) {
  const std::string where = program.name + ": ";
  std::istringstream bytes(std::move(program.bytes));
  torch::jit::Module module = torch::jit::load(bytes, device);
  const auto forward = module.find_method("forward");
  if (!forward) return BadPackage(where + "it has no method 'forward'");
  const Status signature = CheckSignature(forward->function().getSchema());
  if (!signature.ok()) return BadPackage(where + signature.message());
  module.eval();
  return torch::jit::freeze(module);
}

std::vector<at::Tensor> CallForward(torch::jit::Method* forward, const Schema& schema,
                                    const DenseProgramInputs& inputs, at::Device device) {
  // The frozen graph has had its optimizations. The executor's own would make the second run
  // compile, and gain nothing that could be measured.
  const torch::jit::GraphOptimizerEnabledGuard no_profiling(false);
  const auto named =
      (*forward)({c10::List<at::Tensor>(InputsOfScope(schema, Scope::kRequest, inputs, device)),
                  c10::List<at::Tensor>(InputsOfScope(schema, Scope::kExample, inputs, device)),
                  RequestOfExample(inputs, device)})
          .toGenericDict();
  std::vector<at::Tensor> outputs(named.size());
  for (size_t i = 0; i < std::min(outputs.size(), schema.outputs.size()); ++i) {
    const auto output = named.find(schema.outputs[i].name);
    if (output != named.end()) outputs[i] = output->value().toTensor();
  }
  return outputs;
}

}  // namespace embershard
