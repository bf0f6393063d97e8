#include "triton/triton_model.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string_view>
#include <utility>

#include "base/core_count.h"
#include "batching/batching_options.h"
#include "package/refusal.h"
#include "triton/errors.h"

namespace embershard::triton {
namespace {

constexpr uint32_t kConfigVersion = 1;

// What Triton says of a model.
struct Facts {
  std::string name;
  int64_t version = 0;
  std::filesystem::path folder;  // With a folder for each version.
};

Result<Facts> ReadFacts(TRITONBACKEND_Model* model) {
  const char* name = "";
  uint64_t version = 0;
  TRITONBACKEND_ArtifactType artifact = TRITONBACKEND_ARTIFACT_FILESYSTEM;
  const char* folder = "";
  Status status = FromTriton(TRITONBACKEND_ModelName(model, &name));
  if (status.ok()) status = FromTriton(TRITONBACKEND_ModelVersion(model, &version));
  if (status.ok()) status = FromTriton(TRITONBACKEND_ModelRepository(model, &artifact, &folder));
  if (!status.ok()) return status;
  if (artifact != TRITONBACKEND_ARTIFACT_FILESYSTEM) {
    return InvalidArgument("the model repository: expected a folder");
  }
  return Facts{name, static_cast<int64_t>(version), folder};
}

// A message of the server's, deleted with this.
class Message {
 public:
  explicit Message(TRITONSERVER_Message* message) : message_(message) {}
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;
  ~Message() { LogFailure("TRITONSERVER_MessageDelete", TRITONSERVER_MessageDelete(message_)); }

  TRITONSERVER_Message* get() const { return message_; }

 private:
  TRITONSERVER_Message* const message_;
};

Result<std::string> ReadConfigText(TRITONBACKEND_Model* model) {
  TRITONSERVER_Message* given = nullptr;
  Status status = FromTriton(TRITONBACKEND_ModelConfig(model, kConfigVersion, &given));
  if (!status.ok()) return status;
  const Message message(given);
  const char* json = nullptr;
  size_t bytes = 0;
  status = FromTriton(TRITONSERVER_MessageSerializeToJson(message.get(), &json, &bytes));
  if (!status.ok()) return status;
  return std::string(json, bytes);
}

// Adds the model's tensors to `text` where Triton asks for it and there are none.
Status Complete(TRITONBACKEND_Model* model, const Schema& schema, const std::string& text) {
  bool asked = false;
  Status status = FromTriton(TRITONBACKEND_ModelAutoCompleteConfig(model, &asked));
  if (!status.ok() || !asked) return status;
  const Result<std::string> complete = CompleteModelConfig(text, schema);
  if (!complete.ok() || complete->empty()) return complete.status();
  TRITONSERVER_Message* made = nullptr;
  status = FromTriton(
      TRITONSERVER_MessageNewFromSerializedJson(&made, complete->data(), complete->size()));
  if (!status.ok()) return status;
  const Message message(made);
  return FromTriton(TRITONBACKEND_ModelSetConfig(model, kConfigVersion, message.get()));
}

Status CheckIsOf(const Manifest& manifest, const Facts& facts) {
  if (manifest.model != facts.name) {
    return Refusal("manifest.json", "model", facts.name + " (its folder)", manifest.model);
  }
  if (manifest.version != facts.version) {
    return Refusal("manifest.json", "version", std::to_string(facts.version) + " (its folder)",
                   std::to_string(manifest.version));
  }
  return {};
}

// One slot for each instance. If config.pbtxt states no instances, Triton starts one for each core
// (TRITONBACKEND_GetBackendAttribute); if it states no threads, the instances share the cores.
ModelOptions OptionsOf(const ModelConfig& config) {
  const int instances = config.instances > 0 ? config.instances : CoreCount();
  const int threads = config.threads > 0 ? config.threads : std::max(1, CoreCount() / instances);
  ModelOptions options;
  options.package.plan = config.plan;
  options.package.residency = config.residency;
  options.slots = instances;
  options.threads = instances * threads;
  options.dense_program = config.dense_program;
  options.fbgemm_folder = config.fbgemm_folder;
  return options;
}

Result<ChunkBudget> BudgetOf(const ModelConfig& config, const Limits& package) {
  const Result<BatchingOptions> complete = CompleteOptions(
      {.max_batch_examples = config.max_batch_examples, .max_batch_ids = config.max_batch_ids},
      package);
  if (!complete.ok()) return complete.status();
  const size_t examples =  // Where nothing is said, as many as our server merges.
      config.max_batch_examples > 0 ? complete->max_batch_examples : complete->merge_examples;
  constexpr size_t kMost = std::numeric_limits<uint32_t>::max();
  return ChunkBudget{.examples = static_cast<uint32_t>(std::min(examples, kMost)),
                     .ids = complete->max_batch_ids};
}

}  // namespace

Result<std::unique_ptr<TritonModel>> TritonModel::Load(TRITONBACKEND_Model* model,
                                                       const OpenModels& open) {
  const Result<Facts> facts = ReadFacts(model);
  if (!facts.ok()) return facts.status();
  const Result<std::string> text = ReadConfigText(model);
  if (!text.ok()) return text.status();
  const Result<ModelConfig> config = ReadModelConfig(*text);
  if (!config.ok()) return config.status();
  Result<std::unique_ptr<Model>> loaded =
      open(facts->folder / std::to_string(facts->version), OptionsOf(*config));
  if (!loaded.ok()) return loaded.status();
  const Manifest& manifest = (*loaded)->manifest();
  Status status = CheckIsOf(manifest, *facts);
  if (status.ok()) status = CheckTensors(*config, manifest.schema);
  if (status.ok()) status = Complete(model, manifest.schema, *text);
  if (!status.ok()) return status;
  const Result<ChunkBudget> budget = BudgetOf(*config, manifest.limits);
  if (!budget.ok()) return budget.status();
  return std::unique_ptr<TritonModel>(new TritonModel(std::move(*loaded), *budget));
}

TritonModel::TritonModel(std::unique_ptr<Model> model, const ChunkBudget& budget)
    : model_(std::move(model)),
      executor_(model_.get()),
      budget_(budget),
      names_(schema()),
      tensors_(&schema(), &names_, &limits()) {}

std::string TritonModel::Describe() const {
  const Manifest& manifest = model_->manifest();
  return "model '" + manifest.model + "', version " + std::to_string(manifest.version) +
         ": batches of up to " + std::to_string(budget_.examples) + " examples and " +
         std::to_string(budget_.ids) + " ids; dense program " + model_->program().target + ": " +
         model_->program().why;
}

}  // namespace embershard::triton
