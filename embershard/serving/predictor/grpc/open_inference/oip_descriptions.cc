#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "grpc/open_inference/oip_messages.h"
#include "tensors/tensor_specs.h"

namespace embershard::rpc {
namespace {

constexpr char kName[] = "embershard";

inference::DataType DataTypeOf(std::string_view datatype) {
  if (datatype == kInt64) return inference::TYPE_INT64;
  if (datatype == kInt32) return inference::TYPE_INT32;
  return inference::TYPE_FP32;
}

void Describe(const TensorSpec& spec, inference::ModelMetadataResponse::TensorMetadata* tensor) {
  tensor->set_name(spec.name);
  tensor->set_datatype(spec.datatype.data(), spec.datatype.size());
  tensor->mutable_shape()->Assign(spec.shape.begin(), spec.shape.end());
}

template <class Tensor>
void DescribeConfig(const TensorSpec& spec, Tensor* tensor) {
  tensor->set_name(spec.name);
  tensor->set_data_type(DataTypeOf(spec.datatype));
  tensor->mutable_dims()->Assign(spec.shape.begin(), spec.shape.end());
}

const char* StateName(VersionState state) {
  if (state == VersionState::kReady) return "READY";
  return state == VersionState::kLoading ? "LOADING" : "UNAVAILABLE";
}

uint64_t CountOf(const HistogramSnapshot& histogram) {
  return std::accumulate(histogram.counts.begin(), histogram.counts.end(), uint64_t{0});
}

void Set(uint64_t count, double seconds, inference::StatisticDuration* duration) {
  duration->set_count(count);
  duration->set_ns(static_cast<uint64_t>(std::llround(seconds * 1e9)));
}

void AddParameter(const char* key, uint64_t value, inference::ModelConfig* config) {
  (*config->mutable_parameters())[key].set_string_value(std::to_string(value));
}

}  // namespace

void DescribeServer(inference::ServerMetadataResponse* message) {
  message->set_name(kName);
  message->set_version(EMBERSHARD_VERSION);
  for (const char* const extension : {"binary_tensor_data", "model_configuration",
                                      "model_repository", "schedule_policy", "statistics"}) {
    message->add_extensions(extension);
  }
}

void DescribeModel(const Engine& engine, const ServedModels& served,
                   inference::ModelMetadataResponse* message) {
  const Manifest& manifest = engine.manifest();
  message->set_name(manifest.model);
  message->set_platform(kName);
  for (const ServedVersion& version : served.List()) {
    if (version.model == manifest.model && version.state == VersionState::kReady) {
      message->add_versions(std::to_string(version.version));
    }
  }
  for (const TensorSpec& spec : InputSpecs(manifest.schema)) {
    Describe(spec, message->add_inputs());
  }
  for (const TensorSpec& spec : OutputSpecs(manifest.schema)) {
    Describe(spec, message->add_outputs());
  }
}

void DescribeConfig(const Engine& engine, uint64_t default_timeout_us,
                    inference::ModelConfig* config) {
  const Manifest& manifest = engine.manifest();
  config->set_name(manifest.model);
  config->set_platform(kName);
  config->set_backend(kName);
  for (const TensorSpec& spec : InputSpecs(manifest.schema)) {
    inference::ModelInput* const input = config->add_input();
    DescribeConfig(spec, input);
    input->set_optional(true);
  }
  for (const TensorSpec& spec : OutputSpecs(manifest.schema)) {
    DescribeConfig(spec, config->add_output());
  }
  inference::ModelDynamicBatching* const batching = config->mutable_dynamic_batching();
  batching->set_priority_levels(2);
  batching->set_default_priority_level(1);
  inference::ModelQueuePolicy* const policy = batching->mutable_default_queue_policy();
  policy->set_timeout_action(inference::ModelQueuePolicy::REJECT);
  policy->set_default_timeout_microseconds(default_timeout_us);
  policy->set_allow_timeout_override(true);
  AddParameter("max_examples", engine.limits().max_examples, config);
  AddParameter("max_ids", engine.limits().max_ids, config);
}

void DescribeStatistics(const Engine& engine, inference::ModelStatistics* statistics) {
  const EngineSnapshot snapshot = engine.Snapshot();
  const TelemetrySnapshot& counted = snapshot.telemetry;
  statistics->set_name(snapshot.model);
  statistics->set_version(std::to_string(snapshot.version));
  statistics->set_last_inference(counted.last_ok_unix_ms);
  statistics->set_inference_count(counted.examples);
  statistics->set_execution_count(counted.batches);
  inference::InferStatistics* const calls = statistics->mutable_inference_stats();
  for (const NamedHistogram& histogram : counted.histograms) {
    const double seconds = histogram.values.sum;
    if (std::strcmp(histogram.name, "request_seconds") == 0) {
      Set(CountOf(histogram.values), seconds, calls->mutable_success());
    } else if (std::strcmp(histogram.name, "queue_seconds") == 0) {
      Set(CountOf(histogram.values), seconds, calls->mutable_queue());
    }
  }
  const uint64_t good = calls->success().count();
  uint64_t ended = 0;
  for (size_t i = 0; i < kOutcomes; ++i) ended += counted.Count(static_cast<Outcome>(i));
  Set(ended - std::min(ended, counted.Count(Outcome::kOk)), 0, calls->mutable_fail());
  Set(good, 0, calls->mutable_compute_input());
  Set(good, counted.compute_seconds, calls->mutable_compute_infer());
  Set(good, 0, calls->mutable_compute_output());
}

void DescribeRepository(const std::vector<ServedVersion>& versions, bool only_ready,
                        inference::RepositoryIndexResponse* message) {
  for (const ServedVersion& version : versions) {
    if (only_ready && version.state != VersionState::kReady) continue;
    inference::RepositoryIndexResponse::ModelIndex* const model = message->add_models();
    model->set_name(version.model);
    model->set_version(std::to_string(version.version));
    model->set_state(StateName(version.state));
    model->set_reason(version.reason);
  }
}

}  // namespace embershard::rpc
