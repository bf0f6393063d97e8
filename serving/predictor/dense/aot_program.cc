#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/version.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

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

class AotProgram final : public TorchProgram {
 public:
  // `options` without zeros.
  AotProgram(const std::string& path, const Schema& schema, const DenseProgramOptions& options)
      : TorchProgram(schema, options.threads),
        loader_(path, "model", /*run_single_threaded=*/options.slots == 1,
                /*num_runners=*/static_cast<size_t>(options.slots)) {}

 private:
  std::vector<at::Tensor> Forward(const DenseProgramInputs& inputs) override {
    std::vector<at::Tensor> arguments = AtLeastOne(InputsOfScope(schema_, Scope::kRequest, inputs));
    std::vector<at::Tensor> example = AtLeastOne(InputsOfScope(schema_, Scope::kExample, inputs));
    std::move(example.begin(), example.end(), std::back_inserter(arguments));
    arguments.push_back(RequestOfExample(inputs));
    if (inputs.examples == 0) arguments.back() = OneMore(arguments.back());
    std::vector<at::Tensor> outputs = loader_.run(arguments);
    if (inputs.examples > 0) return outputs;
    for (size_t i = 0; i < std::min(outputs.size(), schema_.outputs.size()); ++i) {
      if (schema_.outputs[i].scope == Scope::kExample) outputs[i] = outputs[i].narrow(0, 0, 0);
    }
    return outputs;
  }

  torch::inductor::AOTIModelPackageLoader loader_;
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
