#include "triton/config_validation.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "tensors/tensor_specs.h"

namespace embershard::triton {
namespace {

using nlohmann::json;

bool IsTrue(const json& value) { return value.is_boolean() && value.get<bool>(); }

// Compares dimensions; -1 matches any size.
bool Fits(const json& dims, const std::vector<int64_t>& shape) {
  return dims.is_array() && std::ranges::equal(dims, shape, [](const json& stated, int64_t size) {
           return stated.is_number_integer() && (stated == size || stated == -1);
         });
}

// Without batching, tensors may be stated with or without the leading 1. Dynamic batching without a
// batch size gets one.
Status CheckDims(const json& config, const std::string& which, const json& dims,
                 const std::vector<int64_t>& shape) {
  if (Fits(dims, shape)) return {};
  const bool is_batched = HasBatchSize(config) || config.contains("dynamic_batching");
  std::vector<int64_t> with_one = {1};
  with_one.insert(with_one.end(), shape.begin(), shape.end());
  if (!is_batched && Fits(dims, with_one)) return {};
  return InvalidArgument(kConfigFile, ": ", which, ": dims: expected ", json(shape).dump(),
                         ", got ", PrintableAscii(dims.dump()));
}

// `what`: "input" or "output".
Status CheckStated(const json& config, const char* what, const std::vector<TensorSpec>& specs) {
  for (const json& tensor : Member(config, what)) {
    const std::string name = TextOf(Member(tensor, "name"));
    const std::string data_type = TextOf(Member(tensor, "data_type"));
    const auto spec = std::ranges::find(specs, name, &TensorSpec::name);
    const std::string which = StrCat(what, " '", PrintableAscii(name), "'");
    if (spec == specs.end()) {
      return InvalidArgument(kConfigFile, ": ", which, ": the package has no such ", what);
    }
    const std::string expected = StrCat("TYPE_", spec->datatype);
    if (data_type != expected) {
      return InvalidArgument(kConfigFile, ": ", which, ": data_type: expected ", expected, ", got ",
                             PrintableAscii(data_type));
    }
    RETURN_IF_ERROR(CheckDims(config, which, Member(tensor, "dims"), spec->shape));
  }
  return {};
}

bool IsStated(const json& inputs, std::string_view name) {
  return std::ranges::any_of(
      inputs, [name](const json& input) { return TextOf(Member(input, "name")) == name; });
}

// Sparse inputs are never required: they default to empty lists.
Status CheckRequired(const json& inputs, const Schema& schema) {
  for (const DenseInput& input : schema.dense) {
    const std::string_view packed = input.scope == Scope::kRequest ? kRequestDense : kDense;
    if (input.default_value.has_value() || IsStated(inputs, input.name) ||
        IsStated(inputs, packed)) {
      continue;
    }
    return InvalidArgument(kConfigFile, ": input '", input.name,
                           "': missing (the package has no default for it)");
  }
  return {};
}

}  // namespace

const json& Member(const json& object, const char* key) {
  static const json kNull;
  if (!object.is_object()) return kNull;
  const auto member = object.find(key);
  return member != object.end() ? *member : kNull;
}

std::string TextOf(const json& value) { return value.is_string() ? value.get<std::string>() : ""; }

bool HasBatchSize(const json& config) {
  const json& requests = Member(config, "max_batch_size");
  return requests.is_number() && requests != 0;
}

Status CheckFeatures(const json& config) {
  if (IsTrue(Member(Member(config, "response_cache"), "enable"))) {
    return InvalidArgument(kConfigFile,
                           ": response_cache: enable: expected false, got true: the cache looks at "
                           "the inputs of a request, not at its parameters and outputs");
  }
  if (IsTrue(Member(Member(config, "model_transaction_policy"), "decoupled"))) {
    return InvalidArgument(kConfigFile,
                           ": model_transaction_policy: decoupled: expected false, got true: each "
                           "request has one response");
  }
  if (config.contains("sequence_batching")) {
    return InvalidArgument(kConfigFile,
                           ": sequence_batching: expected none: sequences of requests are not "
                           "served");
  }
  return {};
}

Status CheckTensors(const json& config, const Schema& schema) {
  const json& inputs = Member(config, "input");
  if (inputs.empty() && Member(config, "output").empty()) return {};
  RETURN_IF_ERROR(CheckStated(config, "input", InputSpecs(schema)));
  RETURN_IF_ERROR(CheckStated(config, "output", OutputSpecs(schema)));
  return CheckRequired(inputs, schema);
}

}  // namespace embershard::triton
