#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "base/core_count.h"
#include "dense/dense_program.h"
#include "dense/tensors.h"
#include "dense/torchscript_module.h"
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
      return CopyOutputs(schema_, CallForward(&forward_, schema_, inputs, at::kCPU), inputs,
                         outputs);
    } catch (const std::exception& error) {
      return Internal("dense program: ", Reason(error));
    }
  }

 private:
  const Schema schema_;
  const int threads_;
  const torch::jit::Module module_;
  torch::jit::Method forward_;
};

}  // namespace

Result<std::unique_ptr<DenseProgram>> LoadTorchScriptProgram(ProgramBytes program,
                                                             const Schema& schema,
                                                             const DenseProgramOptions& options) {
  const std::string where = program.name + ": ";
  try {
    ASSIGN_OR_RETURN(torch::jit::Module module, LoadModule(std::move(program), at::kCPU));
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
