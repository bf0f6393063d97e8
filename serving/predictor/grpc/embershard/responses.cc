#include "grpc/embershard/responses.h"

#include <limits>

#include "embershard/v1/predictor.pb.h"
#include "package/id_maps.h"

namespace embershard::rpc {
namespace {

v1::Scope WireScope(Scope scope) {
  return scope == Scope::kRequest ? v1::SCOPE_REQUEST : v1::SCOPE_EXAMPLE;
}

v1::Keep WireKeep(Keep keep) {
  if (keep == Keep::kReject) return v1::KEEP_REJECT;
  return keep == Keep::kFirst ? v1::KEEP_FIRST : v1::KEEP_LAST;
}

}  // namespace

void FillResponse(const Manifest& manifest, const v1::PredictRequest& asked,
                  const Response& response, v1::PredictResponse* message) {
  const Schema& schema = manifest.schema;
  message->set_model(manifest.model);
  message->set_version(manifest.version);
  message->set_request_id(asked.request_id());
  for (const ResponseOutput& output : response.outputs) {
    const OutputSpec& spec = schema.outputs[output.output];
    v1::Output* const filled = message->add_outputs();
    filled->set_name(spec.name);
    filled->set_values(output.values.data(), output.values.size() * sizeof(float));
    filled->add_shape(spec.scope == Scope::kRequest ? 1 : asked.num_examples());
    for (const int64_t size : spec.shape) filled->add_shape(size);
  }
  for (const UnknownIdCount& unknown : response.unknown_ids) {
    v1::UnknownIds* const filled = message->add_unknown_ids();
    filled->set_feature(schema.sparse[unknown.sparse_input].name);
    filled->set_count(unknown.count);
  }
  v1::Timing* const timing = message->mutable_timing();
  timing->set_queue_us(response.timing.queue_us);
  timing->set_lookup_us(response.timing.lookup_us);
  timing->set_dense_us(response.timing.dense_us);
  timing->set_total_us(response.timing.total_us);
}

void DescribeModel(const Engine& engine, uint64_t max_message_bytes,
                   v1::GetModelResponse* message) {
  const Manifest& manifest = engine.manifest();
  message->set_model(manifest.model);
  message->set_version(manifest.version);
  message->set_schema(manifest.schema.fingerprint);
  for (const DenseInput& input : manifest.schema.dense) {
    v1::Input* const described = message->add_inputs();
    described->set_name(input.name);
    described->set_scope(WireScope(input.scope));
    v1::DenseInput* const dense = described->mutable_dense();
    if (input.default_value.has_value()) dense->set_default_(*input.default_value);
  }
  for (const SparseInput& input : manifest.schema.sparse) {
    v1::Input* const described = message->add_inputs();
    described->set_name(input.name);
    described->set_scope(WireScope(input.scope));
    v1::SparseInput* const sparse = described->mutable_sparse();
    sparse->set_weighted(input.weighted);
    sparse->set_max_ids(input.max_ids);
    sparse->set_keep(WireKeep(input.keep));
    const bool is_vocabulary = input.ids.kind == IdMapKind::kVocab;
    sparse->set_known_ids(is_vocabulary ? 0 : static_cast<uint64_t>(KnownIds(input.ids)));
    sparse->set_hashed(input.ids.kind == IdMapKind::kHash);
  }
  for (const OutputSpec& output : manifest.schema.outputs) {
    v1::OutputSpec* const described = message->add_outputs();
    described->set_name(output.name);
    described->set_scope(WireScope(output.scope));
    for (const int64_t size : output.shape) described->add_shape(size);
  }
  const Limits limits = engine.limits();
  message->mutable_limits()->set_max_examples(limits.max_examples);
  message->mutable_limits()->set_max_ids(limits.max_ids);
  message->mutable_limits()->set_max_message_bytes(max_message_bytes);
}

std::string GetModelSerialized(const Engine& engine) {
  v1::GetModelResponse message;
  // Nothing is sent, so protobuf's own limit is the only one.
  DescribeModel(engine, std::numeric_limits<int32_t>::max(), &message);
  return message.SerializeAsString();
}

}  // namespace embershard::rpc
