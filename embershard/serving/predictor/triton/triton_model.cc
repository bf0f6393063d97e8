#include "triton/triton_model.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/core_count.h"
#include "base/status.h"
#include "base/text.h"
#include "batching/batching_options.h"
#include "package/json.h"
#include "package/manifest.h"
#include "package/repository.h"
#include "package/tables.h"
#include "tensors/tensor_specs.h"
#include "triton/config_validation.h"
#include "triton/errors.h"

namespace embershard::triton {
namespace {

using nlohmann::json;

constexpr uint32_t kConfigVersion = 1;

constexpr int kDefaultMaxRequests = 256;

// The settings of a model's config.pbtxt; see docs/triton.md.
struct ModelConfig {
  json document;         // The configuration from Triton.
  ModelOptions options;  // `threads` and `slots` are totals of all instances.
  ChunkBudget budget = {.examples = kMergeExamples, .ids = kBatchIds};  // Limits of one batch.
};

Status Refuse(const std::string& parameter, const std::string& expected, const std::string& got) {
  return InvalidArgument("parameter '", parameter, "': expected ", expected, ", got '",
                         PrintableAscii(got), "'");
}

template <class Number>
Status ReadNumber(const std::string& key, const std::string& text, Number most, Number* number) {
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, *number);
  if (error == std::errc() && rest == end && *number >= 1 && *number <= most) return {};
  return Refuse(key, "a whole number in 1.." + std::to_string(most), text);
}

Status ReadParameter(const std::string& key, const std::string& text, ModelConfig* config) {
  if (key == "plan") {
    config->options.package.plan = text;
  } else if (key == "dense_program") {
    config->options.dense_program = text;
  } else if (key == "fbgemm") {
    config->options.fbgemm_folder = text;
  } else if (key == "tables") {
    if (text != "mmap" && text != "resident") return Refuse(key, "mmap or resident", text);
    config->options.package.residency =
        text == "mmap" ? TableResidency::kMmap : TableResidency::kResident;
  } else if (key == "threads") {
    return ReadNumber(key, text, kThreadsMax, &config->options.threads);
  } else if (key == "max_batch_examples") {
    constexpr uint32_t kMost = std::numeric_limits<uint32_t>::max();
    return ReadNumber(key, text, kMost, &config->budget.examples);
  } else if (key == "max_batch_ids") {
    constexpr uint64_t kMost = uint64_t{1} << 40;
    return ReadNumber(key, text, kMost, &config->budget.ids);
  } else if (!key.starts_with("TRITON_")) {
    return InvalidArgument(
        "parameter '", PrintableAscii(key),
        "': expected one of 'dense_program', 'fbgemm', 'max_batch_examples', 'max_batch_ids', "
        "'plan', 'tables', 'threads'");
  }
  return {};
}

// Triton starts `count` instances for each entry of `gpus`. 0 if there are no groups.
int CountInstances(const json& groups) {
  int64_t count = 0;
  for (const json& group : groups) {
    const json& of_group = Member(group, "count");
    const auto gpus = static_cast<int64_t>(std::max<size_t>(1, Member(group, "gpus").size()));
    if (of_group.is_number_integer()) count += gpus * std::max<int64_t>(of_group.get<int64_t>(), 0);
  }
  return static_cast<int>(std::min<int64_t>(count, kThreadsMax));
}

json Describe(const std::vector<TensorSpec>& specs, bool inputs) {
  json tensors = json::array();
  for (const TensorSpec& spec : specs) {
    json tensor = {
        {"name", spec.name}, {"data_type", StrCat("TYPE_", spec.datatype)}, {"dims", spec.shape}};
    if (inputs) {
      tensor["optional"] = true;
      const bool varies = std::ranges::find(spec.shape, -1) != spec.shape.end();
      if (varies) tensor["allow_ragged_batch"] = true;
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

// kInvalidArgument names the parameter that is bad. Parameters that begin with TRITON_ are for
// Triton itself. Each instance of the model gets one slot, and all share the cores. Without a
// number of instances, Triton starts one for each core, as this backend suggests in
// TRITONBACKEND_GetBackendAttribute().
Result<ModelConfig> ReadModelConfig(std::string_view text) {
  ModelConfig config;
  RETURN_IF_ERROR(ParseJson(text, kConfigFile, &config.document));
  RETURN_IF_ERROR(CheckFeatures(config.document));
  for (const auto& [key, value] : Member(config.document, "parameters").items()) {
    RETURN_IF_ERROR(ReadParameter(key, TextOf(Member(value, "string_value")), &config));
  }
  const int stated = CountInstances(Member(config.document, "instance_group"));
  ModelOptions& options = config.options;
  options.slots = stated > 0 ? stated : std::min(CoreCount(), kThreadsMax);
  const int most = kThreadsMax / options.slots;
  if (options.threads == 0) options.threads = std::clamp(CoreCount() / options.slots, 1, most);
  if (options.threads > most) {
    return InvalidArgument("parameter 'threads': expected 1..", most, " beside ", options.slots,
                           " instances, got ", options.threads);
  }
  options.threads *= options.slots;
  return config;
}

// Adds the schema's tensors if the configuration has none, and dynamic batching if it then has no
// batch size. Dynamic batching without a batch size gets one. Returns an empty string if there is
// nothing to add.
std::string CompleteModelConfig(json document, const Schema& schema) {
  const bool has_tensors =
      !Member(document, "input").empty() || !Member(document, "output").empty();
  if (!has_tensors) {
    document["input"] = Describe(InputSpecs(schema), /*inputs=*/true);
    document["output"] = Describe(OutputSpecs(schema), /*inputs=*/false);
    if (!HasBatchSize(document)) document.emplace("dynamic_batching", json::object());
  }
  const bool lacks_size = !HasBatchSize(document) && document.contains("dynamic_batching");
  if (lacks_size) document["max_batch_size"] = kDefaultMaxRequests;
  return has_tensors && !lacks_size ? "" : document.dump();
}

struct Facts {
  std::string name;
  int64_t version = 0;
  std::filesystem::path folder;  // Contains a folder per version.
};

Result<Facts> ReadFacts(TRITONBACKEND_Model* model) {
  const char* name = "";
  uint64_t version = 0;
  TRITONBACKEND_ArtifactType artifact = TRITONBACKEND_ARTIFACT_FILESYSTEM;
  const char* folder = "";
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_ModelName(model, &name)));
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_ModelVersion(model, &version)));
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_ModelRepository(model, &artifact, &folder)));
  if (artifact != TRITONBACKEND_ARTIFACT_FILESYSTEM) {
    return InvalidArgument("the model repository: expected a folder");
  }
  return Facts{name, static_cast<int64_t>(version), folder};
}

struct DeleteMessage {
  void operator()(TRITONSERVER_Message* message) const {
    LogFailure("TRITONSERVER_MessageDelete", TRITONSERVER_MessageDelete(message));
  }
};
using Message = std::unique_ptr<TRITONSERVER_Message, DeleteMessage>;

Result<std::string> ReadConfigText(TRITONBACKEND_Model* model) {
  TRITONSERVER_Message* config_message = nullptr;
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_ModelConfig(model, kConfigVersion, &config_message)));
  const Message message(config_message);
  const char* json = nullptr;
  size_t bytes = 0;
  RETURN_IF_ERROR(FromTriton(TRITONSERVER_MessageSerializeToJson(message.get(), &json, &bytes)));
  return std::string(json, bytes);
}

// Completes the model's configuration if Triton asks for it; see CompleteModelConfig().
Status Complete(TRITONBACKEND_Model* model, const Schema& schema, const ModelConfig& config) {
  bool auto_completes = false;
  Status status = FromTriton(TRITONBACKEND_ModelAutoCompleteConfig(model, &auto_completes));
  if (!status.ok() || !auto_completes) return status;
  const std::string complete = CompleteModelConfig(config.document, schema);
  if (complete.empty()) return {};
  TRITONSERVER_Message* made = nullptr;
  RETURN_IF_ERROR(FromTriton(
      TRITONSERVER_MessageNewFromSerializedJson(&made, complete.data(), complete.size())));
  const Message message(made);
  return FromTriton(TRITONBACKEND_ModelSetConfig(model, kConfigVersion, message.get()));
}

Status WithAdvice(const Status& status, const std::filesystem::path& package) {
  if (status.ok()) return {};
  return InvalidArgument(status.message(), "; to write config.pbtxt anew, run `embershard ",
                         "triton-config --force ", package.string(), "`");
}

}  // namespace

Result<std::unique_ptr<TritonModel>> TritonModel::Load(TRITONBACKEND_Model* model,
                                                       const OpenModels& open) {
  ASSIGN_OR_RETURN(const Facts facts, ReadFacts(model));
  ASSIGN_OR_RETURN(const std::string text, ReadConfigText(model));
  ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(text));
  const std::filesystem::path folder = facts.folder / std::to_string(facts.version);
  ASSIGN_OR_RETURN(std::unique_ptr<Model> loaded, open(folder, config.options));
  const Manifest& manifest = loaded->manifest();
  RETURN_IF_ERROR(CheckNames(facts.name, facts.version, manifest.model, manifest.version));
  RETURN_IF_ERROR(WithAdvice(CheckTensors(config.document, manifest.schema), folder));
  RETURN_IF_ERROR(Complete(model, manifest.schema, config));
  return std::unique_ptr<TritonModel>(new TritonModel(std::move(loaded), config.budget));
}

TritonModel::TritonModel(std::unique_ptr<Model> model, const ChunkBudget& budget)
    : model_(std::move(model)),
      executor_(model_.get()),
      budget_(budget),
      names_(schema()),
      tensors_(&schema(), &names_, &limits()) {
  for (size_t number = model_->slots(); number > 0; --number) {
    free_.push_back(std::make_unique<Slot>(number - 1));
  }
}

TritonModel::LeasedSlot TritonModel::LeaseSlot() {
  const MutexLock lock(mutex_);
  while (free_.empty()) freed_.Wait(mutex_);
  Slot* const slot = free_.back().release();
  free_.pop_back();
  return {slot, [this](Slot* returned) {
            {
              const MutexLock returning(mutex_);
              free_.emplace_back(returned);
            }
            freed_.NotifyOne();
          }};
}

std::string TritonModel::Describe() const {
  const Manifest& manifest = model_->manifest();
  return StrCat("model '", manifest.model, "', version ", manifest.version, ": batches of up to ",
                budget_.examples, " examples and ", budget_.ids, " ids; dense program ",
                model_->program().target, ": ", model_->program().why);
}

}  // namespace embershard::triton
