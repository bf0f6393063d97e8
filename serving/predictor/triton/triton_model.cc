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
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_ModelName(model, &name)));
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_ModelVersion(model, &version)));
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_ModelRepository(model, &artifact, &folder)));
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
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_ModelConfig(model, kConfigVersion, &given)));
  const Message message(given);
  const char* json = nullptr;
  size_t bytes = 0;
  RETURN_IF_ERROR(FromTriton(TRITONSERVER_MessageSerializeToJson(message.get(), &json, &bytes)));
  return std::string(json, bytes);
}

// Adds the model's tensors to `text` where Triton asks for it and there are none.
Status Complete(TRITONBACKEND_Model* model, const Schema& schema, const std::string& text) {
  bool asked = false;
  Status status = FromTriton(TRITONBACKEND_ModelAutoCompleteConfig(model, &asked));
  if (!status.ok() || !asked) return status;
  ASSIGN_OR_RETURN(const std::string complete, CompleteModelConfig(text, schema));
  if (complete.empty()) return {};
  TRITONSERVER_Message* made = nullptr;
  RETURN_IF_ERROR(FromTriton(
      TRITONSERVER_MessageNewFromSerializedJson(&made, complete.data(), complete.size())));
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
  ASSIGN_OR_RETURN(const BatchingOptions complete,
                   CompleteOptions({.max_batch_examples = config.max_batch_examples,
                                    .max_batch_ids = config.max_batch_ids},
                                   package));
  const size_t examples =  // Where nothing is said, as many as our server merges.
      config.max_batch_examples > 0 ? complete.max_batch_examples : complete.merge_examples;
  constexpr size_t kMost = std::numeric_limits<uint32_t>::max();
  return ChunkBudget{.examples = static_cast<uint32_t>(std::min(examples, kMost)),
                     .ids = complete.max_batch_ids};
}

}  // namespace

Result<std::unique_ptr<TritonModel>> TritonModel::Load(TRITONBACKEND_Model* model,
                                                       const OpenModels& open) {
  ASSIGN_OR_RETURN(const Facts facts, ReadFacts(model));
  ASSIGN_OR_RETURN(const std::string text, ReadConfigText(model));
  ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(text));
  ASSIGN_OR_RETURN(std::unique_ptr<Model> loaded,
                   open(facts.folder / std::to_string(facts.version), OptionsOf(config)));
  const Manifest& manifest = loaded->manifest();
  RETURN_IF_ERROR(CheckIsOf(manifest, facts));
  RETURN_IF_ERROR(CheckTensors(config, manifest.schema));
  RETURN_IF_ERROR(Complete(model, manifest.schema, text));
  ASSIGN_OR_RETURN(const ChunkBudget budget, BudgetOf(config, manifest.limits));
  return std::unique_ptr<TritonModel>(new TritonModel(std::move(loaded), budget));
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
