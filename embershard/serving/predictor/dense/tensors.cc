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
at::Tensor View(T* values, at::IntArrayRef shape) {
  using Value = std::remove_const_t<T>;
  return at::from_blob(const_cast<Value*>(values), shape,
                       at::TensorOptions(c10::CppTypeToScalarType<Value>::value));
}

std::string ShapeText(at::IntArrayRef shape) {
  std::ostringstream text;
  text << shape;
  return text.str();
}

// Copies `output` into `values`. kInternal: it is not as `spec` says.
Status CopyOutput(const OutputSpec& spec, const at::Tensor& output,
                  const DenseProgramInputs& inputs, std::vector<float>* values) {
  if (!output.defined()) return Internal("dense program: no output '", spec.name, "'");
  std::vector<int64_t> shape = {
      static_cast<int64_t>(spec.scope == Scope::kRequest ? inputs.requests : inputs.examples)};
  shape.insert(shape.end(), spec.shape.begin(), spec.shape.end());
  if (output.sizes() != shape || output.scalar_type() != at::kFloat) {
    return Internal("dense program: output '" + spec.name + "': expected Float " +
                    ShapeText(shape) + ", got " + toString(output.scalar_type()) + " " +
                    ShapeText(output.sizes()));
  }
  const at::Tensor together = output.contiguous();
  values->resize(static_cast<size_t>(together.numel()));
  std::memcpy(values->data(), together.const_data_ptr<float>(), together.nbytes());
  return {};
}

// Sequences of zeros, with `ids` ids in each list.
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

}  // namespace

std::string Reason(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string words =
      torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  std::string reason;
  for (const char each : words) {
    // A damaged program may have it quote anything, and it goes where text is expected.
    if (each == '\n' || (each >= ' ' && each <= '~')) {
      reason += each;
    } else {
      constexpr std::string_view kDigits = "0123456789abcdef";
      const auto byte = static_cast<unsigned char>(each);
      reason += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return reason;
}

std::vector<at::Tensor> InputsOfScope(const Schema& schema, Scope scope,
                                      const DenseProgramInputs& inputs) {
  const bool request = scope == Scope::kRequest;
  const auto count = static_cast<int64_t>(request ? inputs.requests : inputs.examples);
  const size_t dense = request ? schema.request_dense_columns : schema.example_dense_columns;
  const size_t pooled = request ? schema.request_pooled_columns : schema.example_pooled_columns;
  std::vector<at::Tensor> tensors = {View(request ? inputs.request_dense : inputs.example_dense,
                                          {count, static_cast<int64_t>(dense)}),
                                     View(request ? inputs.request_pooled : inputs.example_pooled,
                                          {count, static_cast<int64_t>(pooled)})};
  for (size_t i = 0; i < schema.sequences.size(); ++i) {
    if (schema.sequences[i].scope != scope) continue;
    const SequenceInput& given = inputs.sequences[i];
    tensors.push_back(
        View(given.values, {static_cast<int64_t>(given.ids), schema.sequences[i].dim}));
    tensors.push_back(View(given.offsets, {count + 1}));
  }
  return tensors;
}

at::Tensor RequestOfExample(const DenseProgramInputs& inputs) {
  return View(inputs.request_of_example, {static_cast<int64_t>(inputs.examples)});
}

Status CopyOutputs(const Schema& schema, std::span<const at::Tensor> results,
                   const DenseProgramInputs& inputs, std::vector<std::vector<float>>* outputs) {
  outputs->resize(schema.outputs.size());
  if (results.size() != outputs->size()) {
    return Internal("dense program: expected ", outputs->size(), " outputs, got ", results.size());
  }
  for (size_t i = 0; i < results.size(); ++i) {
    RETURN_IF_ERROR(CopyOutput(schema.outputs[i], results[i], inputs, &(*outputs)[i]));
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
