#include "dense/tensors.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <sstream>
#include <string_view>
#include <type_traits>

namespace embershard {
namespace {

template <class T>
at::Tensor View(T* values, at::IntArrayRef shape, at::Device device) {
  using Value = std::remove_const_t<T>;
  return at::for_blob(const_cast<Value*>(values), shape)
      .options(at::TensorOptions(c10::CppTypeToScalarType<Value>::value).device(device))
      .target_device(device)
      .make_tensor();
}

std::string ShapeText(at::IntArrayRef shape) {
  std::ostringstream text;
  text << shape;
  return text.str();
}

Status CheckOutput(const OutputSpec& spec, const at::Tensor& output,
                   const DenseProgramInputs& inputs) {
  if (!output.defined()) {
    return Internal("dense program: expected an output '", spec.name, "', got none");
  }
  std::vector<int64_t> shape = {
      static_cast<int64_t>(spec.scope == Scope::kRequest ? inputs.requests : inputs.examples)};
  shape.insert(shape.end(), spec.shape.begin(), spec.shape.end());
  if (output.sizes() == shape && output.scalar_type() == at::kFloat) return {};
  return Internal("dense program: output '" + spec.name + "': expected Float " + ShapeText(shape) +
                  ", got " + toString(output.scalar_type()) + " " + ShapeText(output.sizes()));
}

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
  std::vector<SequenceInput> inputs_;  // Views of the two above, whose elements never move.
};

}  // namespace

std::string Reason(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string message =
      torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  std::string reason;
  for (const char c : message) {
    // The message may quote any bytes of a damaged program, but must be text.
    if (c == '\n' || (c >= ' ' && c <= '~')) {
      reason += c;
    } else {
      constexpr std::string_view kDigits = "0123456789abcdef";
      const auto byte = static_cast<unsigned char>(c);
      reason += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return reason;
}

std::vector<at::Tensor> InputsOfScope(const Schema& schema, Scope scope,
                                      const DenseProgramInputs& inputs, at::Device device) {
  const bool request = scope == Scope::kRequest;
  const auto count = static_cast<int64_t>(request ? inputs.requests : inputs.examples);
  const size_t dense = request ? schema.request_dense_columns : schema.example_dense_columns;
  const size_t pooled = request ? schema.request_pooled_columns : schema.example_pooled_columns;
  std::vector<at::Tensor> tensors = {View(request ? inputs.request_dense : inputs.example_dense,
                                          {count, static_cast<int64_t>(dense)}, device),
                                     View(request ? inputs.request_pooled : inputs.example_pooled,
                                          {count, static_cast<int64_t>(pooled)}, device)};
  for (size_t i = 0; i < schema.sequences.size(); ++i) {
    if (schema.sequences[i].scope != scope) continue;
    const SequenceInput& sequence = inputs.sequences[i];
    const auto ids = static_cast<int64_t>(sequence.ids);
    tensors.push_back(View(sequence.values, {ids, schema.sequences[i].dim}, device));
    tensors.push_back(View(sequence.offsets, {count + 1}, device));
  }
  return tensors;
}

at::Tensor RequestOfExample(const DenseProgramInputs& inputs, at::Device device) {
  return View(inputs.request_of_example, {static_cast<int64_t>(inputs.examples)}, device);
}

Status CheckOutputs(const Schema& schema, std::span<const at::Tensor> results,
                    const DenseProgramInputs& inputs) {
  if (results.size() != schema.outputs.size()) {
    return Internal("dense program: expected ", schema.outputs.size(), " outputs, got ",
                    results.size());
  }
  for (size_t i = 0; i < results.size(); ++i) {
    RETURN_IF_ERROR(CheckOutput(schema.outputs[i], results[i], inputs));
  }
  return {};
}

Status CopyOutputs(const Schema& schema, std::span<const at::Tensor> results,
                   const DenseProgramInputs& inputs, std::vector<std::vector<float>>* outputs) {
  RETURN_IF_ERROR(CheckOutputs(schema, results, inputs));
  outputs->resize(results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    const at::Tensor contiguous = results[i].contiguous();
    std::vector<float>& values = (*outputs)[i];
    values.resize(static_cast<size_t>(contiguous.numel()));
    std::memcpy(values.data(), contiguous.const_data_ptr<float>(), contiguous.nbytes());
  }
  return {};
}

Status TryOnce(DenseProgram& program, const Schema& schema) {
  constexpr size_t kRequests = 2;
  constexpr size_t kExamples = 3;
  std::vector<float> request_dense(kRequests * schema.request_dense_columns);
  std::vector<float> request_pooled(kRequests * schema.request_pooled_columns);
  std::vector<float> example_dense(kExamples * schema.example_dense_columns);
  std::vector<float> example_pooled(kExamples * schema.example_pooled_columns);
  const std::vector<int64_t> request_of_example = {0, 0, 1};
  const ZeroSequences sequences(schema, kRequests, kExamples, /*ids=*/2);
  std::vector<std::vector<float>> outputs;
  return program.Run({.requests = kRequests,
                      .examples = kExamples,
                      .request_dense = request_dense.data(),
                      .request_pooled = request_pooled.data(),
                      .example_dense = example_dense.data(),
                      .example_pooled = example_pooled.data(),
                      .request_of_example = request_of_example.data(),
                      .sequences = sequences.inputs()},
                     &outputs);
}

}  // namespace embershard
