#include "triton/model_config.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/text.h"
#include "package/json_parse.h"
#include "tensors/tensor_specs.h"

namespace embershard::triton {
namespace {

using nlohmann::json;

constexpr char kFile[] = "config.pbtxt";
constexpr int kThreadsMax = 1024;

Status Refuse(const std::string& parameter, const std::string& expected, const std::string& got) {
  return InvalidArgument("parameter '", parameter, "': expected ", expected, ", got '",
                         PrintableAscii(got), "'");
}

// A member of an object, null where there is none.
const json& Member(const json& object, const char* key) {
  static const json kNull;
  if (!object.is_object()) return kNull;
  const auto found = object.find(key);
  return found != object.end() ? *found : kNull;
}

std::string TextOf(const json& value) { return value.is_string() ? value.get<std::string>() : ""; }

template <class Number>
Status ReadNumber(const std::string& key, const std::string& text, Number most, Number* number) {
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, *number);
  if (error == std::errc() && rest == end && *number >= 1 && *number <= most) return {};
  return Refuse(key, "a whole number in 1.." + std::to_string(most), text);
}

Status ReadParameter(const std::string& key, const std::string& text, ModelConfig* config) {
  if (key == "plan") {
    config->plan = text;
  } else if (key == "dense_program") {
    config->dense_program = text;
  } else if (key == "fbgemm") {
    config->fbgemm_folder = text;
  } else if (key == "tables") {
    if (text != "mmap" && text != "resident") return Refuse(key, "mmap or resident", text);
    config->residency = text == "mmap" ? TableResidency::kMmap : TableResidency::kResident;
  } else if (key == "threads") {
    return ReadNumber(key, text, kThreadsMax, &config->threads);
  } else if (key == "max_batch_examples") {
    constexpr size_t kMost = std::numeric_limits<uint32_t>::max();
    return ReadNumber(key, text, kMost, &config->max_batch_examples);
  } else if (key == "max_batch_ids") {
    constexpr uint64_t kMost = uint64_t{1} << 40;
    return ReadNumber(key, text, kMost, &config->max_batch_ids);
  } else if (!key.starts_with("TRITON_")) {
    return InvalidArgument(
        "parameter '", PrintableAscii(key),
        "': expected one of 'dense_program', 'fbgemm', 'max_batch_examples', 'max_batch_ids', "
        "'plan', 'tables', 'threads'");
  }
  return {};
}

std::vector<ConfigTensor> ReadTensors(const json& list) {
  std::vector<ConfigTensor> tensors;
  for (const json& tensor : list) {
    tensors.push_back({TextOf(Member(tensor, "name")), TextOf(Member(tensor, "data_type"))});
  }
  return tensors;
}

int CountInstances(const json& groups) {
  int64_t count = 0;
  for (const json& group : groups) {
    const json& of_group = Member(group, "count");
    if (of_group.is_number_integer()) count += std::max<int64_t>(of_group.get<int64_t>(), 0);
  }
  return static_cast<int>(std::min<int64_t>(count, kThreadsMax));
}

// Of one of the two lists. `what`: "input" or "output".
Status CheckTensors(const char* what, const std::vector<ConfigTensor>& stated,
                    const std::vector<TensorSpec>& specs) {
  for (const ConfigTensor& tensor : stated) {
    const auto spec = std::ranges::find(specs, tensor.name, &TensorSpec::name);
    const std::string which = std::string(what) + " '" + PrintableAscii(tensor.name) + "'";
    if (spec == specs.end()) {
      return InvalidArgument(kFile, ": ", which, ": the package has no such ", what);
    }
    const std::string expected = "TYPE_" + std::string(spec->datatype);
    if (tensor.data_type == expected) continue;
    return InvalidArgument(kFile, ": ", which, ": data_type: expected ", expected, ", got ",
                           PrintableAscii(tensor.data_type));
  }
  return {};
}

json Describe(const std::vector<TensorSpec>& specs, bool inputs) {
  json tensors = json::array();
  for (const TensorSpec& spec : specs) {
    json tensor = {{"name", spec.name},
                   {"data_type", "TYPE_" + std::string(spec.datatype)},
                   {"dims", spec.shape}};
    if (inputs) {
      tensor["optional"] = true;
      const bool varies = std::ranges::find(spec.shape, -1) != spec.shape.end();
      if (varies) tensor["allow_ragged_batch"] = true;
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

bool IsEmpty(const json& config, const char* key) { return Member(config, key).empty(); }

}  // namespace

Result<ModelConfig> ReadModelConfig(std::string_view text) {
  json document;
  RETURN_IF_ERROR(ParseJson(text, kFile, &document));
  ModelConfig config;
  for (const auto& [key, value] : Member(document, "parameters").items()) {
    const json& stated = Member(value, "string_value");
    RETURN_IF_ERROR(ReadParameter(key, TextOf(stated), &config));
  }
  config.instances = CountInstances(Member(document, "instance_group"));
  config.inputs = ReadTensors(Member(document, "input"));
  config.outputs = ReadTensors(Member(document, "output"));
  return config;
}

Status CheckTensors(const ModelConfig& config, const Schema& schema) {
  RETURN_IF_ERROR(CheckTensors("input", config.inputs, InputSpecs(schema)));
  return CheckTensors("output", config.outputs, OutputSpecs(schema));
}

Result<std::string> CompleteModelConfig(std::string_view text, const Schema& schema) {
  json document;
  RETURN_IF_ERROR(ParseJson(text, kFile, &document));
  if (!IsEmpty(document, "input") || !IsEmpty(document, "output")) return std::string();
  document["input"] = Describe(InputSpecs(schema), /*inputs=*/true);
  document["output"] = Describe(OutputSpecs(schema), /*inputs=*/false);
  const json& requests = Member(document, "max_batch_size");
  if ((!requests.is_number() || requests == 0) && !document.contains("dynamic_batching") &&
      !document.contains("sequence_batching")) {
    document["max_batch_size"] = kDefaultMaxRequests;
    document["dynamic_batching"] = json::object();
  }
  return document.dump();
}

}  // namespace embershard::triton
