#include <ATen/Parallel.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

#include <cstring>
#include <exception>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "base/thread_count.h"
#include "dense/dense_program.h"
#include "dense/torchscript_linear.h"

namespace embershard {
namespace {

// What went wrong in one line: torch's messages carry a stack trace behind the first.
std::string Reason(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
}

template <class T>
at::Tensor View(T* values, at::IntArrayRef shape) {
  using Value = std::remove_const_t<T>;
  return at::from_blob(const_cast<Value*>(values), shape,
                       at::TensorOptions(c10::CppTypeToScalarType<Value>::value));
}

// Of one scope: the dense inputs, then the pooled ones.
c10::List<at::Tensor> InputsOfScope(float* dense, size_t dense_columns, float* pooled,
                                    size_t pooled_columns, size_t count) {
  const auto rows = static_cast<int64_t>(count);
  return c10::List<at::Tensor>({View(dense, {rows, static_cast<int64_t>(dense_columns)}),
                                View(pooled, {rows, static_cast<int64_t>(pooled_columns)})});
}

// Behind those, of each sequence of the scope: its values, its offsets.
void AddSequences(const Schema& schema, Scope scope, size_t count,
                  std::span<const SequenceInput> sequences, c10::List<at::Tensor>* inputs) {
  for (size_t i = 0; i < schema.sequences.size(); ++i) {
    if (schema.sequences[i].scope != scope) continue;
    const SequenceInput& given = sequences[i];
    inputs->push_back(
        View(given.values, {static_cast<int64_t>(given.ids), schema.sequences[i].dim}));
    inputs->push_back(View(given.offsets, {static_cast<int64_t>(count + 1)}));
  }
}

std::string ShapeText(at::IntArrayRef shape) {
  std::ostringstream text;
  text << shape;
  return text.str();
}

class TorchScriptProgram final : public DenseProgram {
 public:
  TorchScriptProgram(torch::jit::Module module, const Schema& schema, int threads)
      : module_(std::move(module)),
        forward_(module_.get_method("forward")),
        schema_(schema),
        threads_(threads) {}

  Status Run(const DenseProgramInputs& inputs, std::span<std::vector<float>*> outputs) override {
    try {
      const c10::InferenceMode no_gradients;
      // Frozen, the graph has had its optimizations. The executor's own would cost the
      // second run a compilation and gain nothing that could be measured.
      const torch::jit::GraphOptimizerEnabledGuard no_profiling(false);
      UseThreads(threads_, at::get_num_threads, at::set_num_threads);
      return Copy(forward_(Arguments(inputs)).toGenericDict(), inputs, outputs);
    } catch (const std::exception& error) {
      return Internal("dense program: " + Reason(error));
    }
  }

 private:
  std::vector<c10::IValue> Arguments(const DenseProgramInputs& inputs) const {
    c10::List<at::Tensor> request =
        InputsOfScope(inputs.request_dense, schema_.request_dense_columns, inputs.request_pooled,
                      schema_.request_pooled_columns, inputs.requests);
    c10::List<at::Tensor> example =
        InputsOfScope(inputs.example_dense, schema_.example_dense_columns, inputs.example_pooled,
                      schema_.example_pooled_columns, inputs.examples);
    AddSequences(schema_, Scope::kRequest, inputs.requests, inputs.sequences, &request);
    AddSequences(schema_, Scope::kExample, inputs.examples, inputs.sequences, &example);
    return {std::move(request), std::move(example),
            View(inputs.request_of_example, {static_cast<int64_t>(inputs.examples)})};
  }

  Status Copy(const c10::Dict<c10::IValue, c10::IValue>& named, const DenseProgramInputs& inputs,
              std::span<std::vector<float>*> outputs) const {
    if (named.size() != schema_.outputs.size()) {
      return Internal("dense program: expected " + std::to_string(schema_.outputs.size()) +
                      " outputs, got " + std::to_string(named.size()));
    }
    for (size_t i = 0; i < schema_.outputs.size(); ++i) {
      const OutputSpec& spec = schema_.outputs[i];
      const auto found = named.find(spec.name);
      if (found == named.end()) return Internal("dense program: no output '" + spec.name + "'");
      const at::Tensor output = found->value().toTensor();
      std::vector<int64_t> shape = {
          static_cast<int64_t>(spec.scope == Scope::kRequest ? inputs.requests : inputs.examples)};
      shape.insert(shape.end(), spec.shape.begin(), spec.shape.end());
      if (output.sizes() != shape || output.scalar_type() != at::kFloat) {
        return Internal("dense program: output '" + spec.name + "': expected Float " +
                        ShapeText(shape) + ", got " + toString(output.scalar_type()) + " " +
                        ShapeText(output.sizes()));
      }
      const at::Tensor values = output.contiguous();
      outputs[i]->resize(static_cast<size_t>(values.numel()));
      std::memcpy(outputs[i]->data(), values.const_data_ptr<float>(), values.nbytes());
    }
    return {};
  }

  const torch::jit::Module module_;
  torch::jit::Method forward_;
  const Schema schema_;
  const int threads_;
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

// Zeros in place of sequences, `ids` in each list.
class ZeroSequences {
 public:
  ZeroSequences(const Schema& schema, size_t requests, size_t examples, size_t ids) {
    for (const SequenceSpec& spec : schema.sequences) {
      const size_t lists = spec.scope == Scope::kRequest ? requests : examples;
      std::vector<int64_t>& offsets = offsets_.emplace_back();
      for (size_t list = 0; list <= lists; ++list) {
        offsets.push_back(static_cast<int64_t>(list * ids));
      }
      values_.emplace_back(lists * ids * static_cast<size_t>(spec.dim));
      inputs_.push_back(
          {.values = values_.back().data(), .ids = lists * ids, .offsets = offsets.data()});
    }
  }
  std::span<const SequenceInput> inputs() const { return inputs_; }

 private:
  std::vector<std::vector<float>> values_;
  std::vector<std::vector<int64_t>> offsets_;
  std::vector<SequenceInput> inputs_;  // Views of the two above, whose elements stay put.
};

// Runs zeros at R = 2, B = 3: an output that is missing, of a wrong shape or of a wrong
// scope shows before the first request.
Status TryOnce(DenseProgram& program, const Schema& schema) {
  constexpr size_t kRequests = 2;
  constexpr size_t kExamples = 3;
  std::vector<float> request_dense(kRequests * schema.request_dense_columns);
  std::vector<float> request_pooled(kRequests * schema.request_pooled_columns);
  std::vector<float> example_dense(kExamples * schema.example_dense_columns);
  std::vector<float> example_pooled(kExamples * schema.example_pooled_columns);
  const std::vector<int64_t> request_of_example = {0, 0, 1};
  const ZeroSequences sequences(schema, kRequests, kExamples, /*ids=*/2);
  std::vector<std::vector<float>> values(schema.outputs.size());
  std::vector<std::vector<float>*> outputs;
  for (std::vector<float>& output : values) outputs.push_back(&output);
  return program.Run({.requests = kRequests,
                      .examples = kExamples,
                      .request_dense = request_dense.data(),
                      .request_pooled = request_pooled.data(),
                      .example_dense = example_dense.data(),
                      .example_pooled = example_pooled.data(),
                      .request_of_example = request_of_example.data(),
                      .sequences = sequences.inputs()},
                     outputs);
}

}  // namespace

Result<std::unique_ptr<DenseProgram>> LoadTorchScriptProgram(const std::filesystem::path& file,
                                                             const Schema& schema,
                                                             const TorchScriptOptions& options) {
  const std::string where = (file.parent_path().filename() / file.filename()).string() + ": ";
  const int threads = options.threads > 0
                          ? options.threads
                          : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  try {
    torch::jit::Module module = torch::jit::load(file.string(), at::kCPU);
    const auto forward = module.find_method("forward");
    if (!forward) return BadPackage(where + "it has no method 'forward'");
    const Status signature = CheckSignature(forward->function().getSchema());
    if (!signature.ok()) return BadPackage(where + signature.message());
    module.eval();
    module = torch::jit::freeze(module);
    UseThreads(threads, at::get_num_threads, at::set_num_threads);
    PackLinears(module.get_method("forward").graph());
    auto program = std::make_unique<TorchScriptProgram>(std::move(module), schema, threads);
    const Status tried = TryOnce(*program, schema);
    if (!tried.ok()) return BadPackage(where + tried.message());
    return std::unique_ptr<DenseProgram>(std::move(program));
  } catch (const std::exception& error) {
    return BadPackage(where + Reason(error));
  }
}

}  // namespace embershard
