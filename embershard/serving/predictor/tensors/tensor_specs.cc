#include "tensors/tensor_specs.h"

#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>

namespace embershard {
namespace {

// Collects specs, and ignores those whose name is already used.
class Specs {
 public:
  void Add(std::string name, std::string_view datatype, std::vector<int64_t> shape) {
    if (!names_.insert(name).second) return;
    specs_.push_back({std::move(name), datatype, std::move(shape)});
  }
  std::vector<TensorSpec> Take() { return std::move(specs_); }

 private:
  std::unordered_set<std::string> names_;
  std::vector<TensorSpec> specs_;
};

int64_t Rows(Scope scope) { return scope == Scope::kRequest ? 1 : -1; }

void AddPacked(const Schema& schema, Specs* specs) {
  const auto dense = [](size_t columns) { return static_cast<int64_t>(columns); };
  if (schema.example_dense_columns > 0) {
    specs->Add(std::string(kDense), kFp32, {-1, dense(schema.example_dense_columns)});
  }
  if (schema.request_dense_columns > 0) {
    specs->Add(std::string(kRequestDense), kFp32, {dense(schema.request_dense_columns)});
  }
  if (schema.sparse.empty()) return;
  specs->Add(std::string(kLengths), kInt32, {-1});
  specs->Add(std::string(kValues), kInt64, {-1});
  const bool weighted = std::any_of(schema.sparse.begin(), schema.sparse.end(),
                                    [](const SparseInput& input) { return input.weighted; });
  if (weighted) specs->Add(std::string(kWeights), kFp32, {-1});
}

}  // namespace

std::vector<TensorSpec> InputSpecs(const Schema& schema) {
  Specs specs;
  for (const DenseInput& input : schema.dense) specs.Add(input.name, kFp32, {Rows(input.scope)});
  for (const SparseInput& input : schema.sparse) {
    specs.Add(input.name + std::string(kValuesSuffix), kInt64, {-1});
    specs.Add(input.name + std::string(kLengthsSuffix), kInt32, {Rows(input.scope)});
    if (input.weighted) specs.Add(input.name + std::string(kWeightsSuffix), kFp32, {-1});
  }
  AddPacked(schema, &specs);
  return specs.Take();
}

Status UnknownTensor(const Schema& schema, std::string_view name) {
  const std::string_view input = name.substr(0, name.rfind('.'));
  const bool is_sparse =
      std::any_of(schema.sparse.begin(), schema.sparse.end(),
                  [&](const SparseInput& sparse) { return sparse.name == input; });
  std::string known;
  for (const TensorSpec& spec : InputSpecs(schema)) {
    if (is_sparse && spec.name.substr(0, spec.name.rfind('.')) != input) continue;
    known += (known.empty() ? "'" : ", '") + spec.name + "'";
  }
  return InvalidArgument("tensor '" + std::string(name) +
                         "': not an input of the model, expected one of " + known);
}

std::vector<TensorSpec> OutputSpecs(const Schema& schema) {
  std::vector<TensorSpec> specs;
  for (const OutputSpec& output : schema.outputs) {
    std::vector<int64_t> shape = {Rows(output.scope)};
    shape.insert(shape.end(), output.shape.begin(), output.shape.end());
    specs.push_back({output.name, kFp32, std::move(shape)});
  }
  return specs;
}

}  // namespace embershard
