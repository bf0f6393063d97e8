#include "dense/aot_program.h"

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/version.h>

#include <exception>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "base/thread_count.h"
#include "dense/tensors.h"
#include "dense/trial.h"

namespace embershard {
namespace {

class AotProgram final : public DenseProgram {
 public:
  AotProgram(const std::filesystem::path& file, const Schema& schema, int threads)
      : loader_(file.string(), "model", /*run_single_threaded=*/true),
        schema_(schema),
        threads_(threads) {}

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
    std::vector<at::Tensor> arguments = InputsOfScope(schema_, Scope::kRequest, inputs);
    std::vector<at::Tensor> example = InputsOfScope(schema_, Scope::kExample, inputs);
    std::move(example.begin(), example.end(), std::back_inserter(arguments));
    arguments.push_back(RequestOfExample(inputs));
    return arguments;
  }

  Status Copy(const std::vector<at::Tensor>& found, const DenseProgramInputs& inputs,
              std::span<std::vector<float>*> outputs) const {
    if (found.size() != schema_.outputs.size()) {
      return Internal("dense program: expected " + std::to_string(schema_.outputs.size()) +
                      " outputs, got " + std::to_string(found.size()));
    }
    for (size_t i = 0; i < found.size(); ++i) {
      Status status = CopyOutput(schema_.outputs[i], found[i], inputs, outputs[i]);
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

Result<std::unique_ptr<DenseProgram>> LoadAotProgram(const std::filesystem::path& file,
                                                     const Schema& schema,
                                                     const DenseProgramOptions& options) {
  const std::string where = (file.parent_path().filename() / file.filename()).string() + ": ";
  try {
    auto program = std::make_unique<AotProgram>(file, schema, ThreadsOf(options.threads));
    const Status tried = TryOnce(*program, schema);
    if (!tried.ok()) return BadPackage(where + tried.message());
    return std::unique_ptr<DenseProgram>(std::move(program));
  } catch (const std::exception& error) {
    return BadPackage(where + Reason(error));
  }
}

}  // namespace embershard
