#include "dense/aot_program.h"

#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/version.h>

#include <exception>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "base/core_count.h"
#include "base/memory_file.h"
#include "dense/tensors.h"

namespace embershard {
namespace {

// With one row of zeros more.
at::Tensor OneMore(const at::Tensor& rows) {
  std::vector<int64_t> size = rows.sizes().vec();
  size[0] = 1;
  return at::cat({rows, at::zeros(size, rows.options())});
}

// What a program was compiled for, of one scope: at least one example, and for each sequence at
// least one id, which may be in no list. An example of zeros and without ids stands for none.
std::vector<at::Tensor> AtLeastOne(std::vector<at::Tensor> inputs) {
  const bool none = inputs[0].size(0) == 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool is_offsets = i >= 2 && i % 2 == 1;
    if (inputs[i].size(0) == 0 || (none && is_offsets)) inputs[i] = OneMore(inputs[i]);
  }
  return inputs;
}

class AotProgram final : public DenseProgram {
 public:
  // `options` without zeros.
  AotProgram(const std::string& path, const Schema& schema, const DenseProgramOptions& options)
      : loader_(path, "model", /*run_single_threaded=*/options.slots == 1,
                /*num_runners=*/static_cast<size_t>(options.slots)),
        schema_(schema),
        threads_(options.threads) {}

  Status Run(const DenseProgramInputs& inputs, std::span<std::vector<float>*> outputs) override {
    try {
      const c10::InferenceMode no_gradients;
      UseThreads(threads_, at::get_num_threads, at::set_num_threads);
      return Copy(loader_.run(Arguments(inputs)), inputs, outputs);
    } catch (const std::exception& error) {
      return Internal("dense program: " + Reason(error));
    }
  }

 private:
  std::vector<at::Tensor> Arguments(const DenseProgramInputs& inputs) const {
    std::vector<at::Tensor> arguments = AtLeastOne(InputsOfScope(schema_, Scope::kRequest, inputs));
    std::vector<at::Tensor> example = AtLeastOne(InputsOfScope(schema_, Scope::kExample, inputs));
    std::move(example.begin(), example.end(), std::back_inserter(arguments));
    arguments.push_back(RequestOfExample(inputs));
    if (inputs.examples == 0) arguments.back() = OneMore(arguments.back());
    return arguments;
  }

  Status Copy(const std::vector<at::Tensor>& found, const DenseProgramInputs& inputs,
              std::span<std::vector<float>*> outputs) const {
    if (found.size() != schema_.outputs.size()) {
      return Internal("dense program: expected " + std::to_string(schema_.outputs.size()) +
                      " outputs, got " + std::to_string(found.size()));
    }
    for (size_t i = 0; i < found.size(); ++i) {
      const bool none = schema_.outputs[i].scope == Scope::kExample && inputs.examples == 0;
      Status status = CopyOutput(schema_.outputs[i], none ? found[i].narrow(0, 0, 0) : found[i],
                                 inputs, outputs[i]);
      if (!status.ok()) return status;
    }
    return {};
  }

  torch::inductor::AOTIModelPackageLoader loader_;
  const Schema schema_;
  const int threads_;
};

}  // namespace

std::string TorchVersion() { return TORCH_VERSION; }

Result<std::unique_ptr<DenseProgram>> LoadAotProgram(ProgramBytes program, const Schema& schema,
                                                     const DenseProgramOptions& options) {
  const std::string where = program.name + ": ";
  try {
    const Result<File> copy = MakeMemoryFile(program.bytes);
    if (!copy.ok()) return Status(copy.status().code(), where + copy.status().message());
    std::string().swap(program.bytes);  // Frees it: unpacking takes as much again.
    auto loaded = std::make_unique<AotProgram>(
        MemoryFilePath(*copy), schema,
        DenseProgramOptions{.threads = ThreadsOf(options.threads), .slots = options.slots});
    const Status tried = TryOnce(*loaded, schema);
    if (!tried.ok()) return BadPackage(where + tried.message());
    return std::unique_ptr<DenseProgram>(std::move(loaded));
  } catch (const std::exception& error) {
    return BadPackage(where + Reason(error));
  }
}

}  // namespace embershard
