#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <exception>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/core_count.h"
#include "dense/dense_program.h"
#include "dense/tensors.h"
#include "dense/torchscript_passes.h"

namespace embershard {
namespace {

class TorchScriptProgram final : public DenseProgram {
 public:
  TorchScriptProgram(torch::jit::Module module, const Schema& schema, int threads)
      : schema_(schema),
        threads_(threads),
        module_(std::move(module)),
        forward_(module_.get_method("forward")) {}

  Status Run(const DenseProgramInputs& inputs, std::vector<std::vector<float>>* outputs) override {
    try {
      const c10::InferenceMode no_gradients;
      UseThreads(threads_, at::get_num_threads, at::set_num_threads);
      return CopyOutputs(schema_, Forward(inputs), inputs, outputs);
    } catch (const std::exception& error) {
      return Internal("dense program: ", Reason(error));
    }
  }

 private:
  std::vector<at::Tensor> Forward(const DenseProgramInputs& inputs) {
    // The frozen graph has had its optimizations. The executor's own would make the second run
    // compile, and gain nothing that could be measured.
    const torch::jit::GraphOptimizerEnabledGuard no_profiling(false);
    const auto named =
        forward_({c10::List<at::Tensor>(InputsOfScope(schema_, Scope::kRequest, inputs)),
                  c10::List<at::Tensor>(InputsOfScope(schema_, Scope::kExample, inputs)),
                  RequestOfExample(inputs)})
            .toGenericDict();
    std::vector<at::Tensor> outputs(named.size());
    for (size_t i = 0; i < std::min(outputs.size(), schema_.outputs.size()); ++i) {
      const auto output = named.find(schema_.outputs[i].name);
      if (output != named.end()) outputs[i] = output->value().toTensor();
    }
    return outputs;
  }

  const Schema schema_;
  const int threads_;
  const torch::jit::Module module_;
  torch::jit::Method forward_;
};

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

Result<std::unique_ptr<DenseProgram>> LoadTorchScriptProgram(ProgramBytes program,
                                                             const Schema& schema,
                                                             const DenseProgramOptions& options) {
  const std::string where = program.name + ": ";
  try {
    std::istringstream bytes(std::move(program.bytes));
    torch::jit::Module module = torch::jit::load(bytes, at::kCPU);
    const auto forward = module.find_method("forward");
    if (!forward) return BadPackage(where + "it has no method 'forward'");
    const Status signature = CheckSignature(forward->function().getSchema());
    if (!signature.ok()) return BadPackage(where + signature.message());
    module.eval();
    module = torch::jit::freeze(module);
    const int threads = options.threads > 0 ? options.threads : CoreCount();
    UseThreads(threads, at::get_num_threads, at::set_num_threads);
    ReplaceProducts(module.get_method("forward").graph());
    PackLinears(module.get_method("forward").graph(), options.float32_layers);
    FuseEpilogues(module.get_method("forward").graph());
    auto loaded = std::make_unique<TorchScriptProgram>(std::move(module), schema, threads);
    const Status tried = TryOnce(*loaded, schema);
    if (!tried.ok()) return BadPackage(where + tried.message());
    return std::unique_ptr<DenseProgram>(std::move(loaded));
  } catch (const std::exception& error) {
    return BadPackage(where + Reason(error));
  }
}

}  // namespace embershard
