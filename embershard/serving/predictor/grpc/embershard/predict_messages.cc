#include "grpc/embershard/predict_messages.h"

#include <limits>
#include <string>
#include <vector>

#include "base/hex.h"
#include "base/unaligned.h"
#include "batching/request_validation.h"
#include "grpc/server.h"
#include "package/id_maps.h"
#include "tensors/find_names.h"
#include "tensors/packed.h"
#include "tensors/request_parameters.h"

namespace embershard::rpc {
namespace {

Status CheckSize(const char* field, const std::string& text, size_t bytes_max) {
  if (text.size() <= bytes_max) return {};
  return InvalidArgument(field, ": expected at most ", bytes_max, " bytes, got ", text.size());
}

// Memory of a message, estimated from its packed arrays. Protobuf's own function walks every field
// by reflection, which takes longer than the rest of the parser.
uint64_t HeldBytes(const v1::PredictRequest& message) {
  const v1::Packed& packed = message.packed();
  const bool only_packed = message.has_packed() && message.outputs().empty() &&
                           message.dense().empty() && message.sparse().empty() &&
                           message.GetReflection()->GetUnknownFields(message).empty() &&
                           packed.GetReflection()->GetUnknownFields(packed).empty();
  if (!only_packed) return message.SpaceUsedLong();
  uint64_t bytes = sizeof(message) + sizeof(packed);
  for (const std::string* field :
       {&message.model(), &message.label(), &message.request_id(), &message.traffic_key(),
        &packed.request_dense(), &packed.example_dense(), &packed.lengths(), &packed.values(),
        &packed.weights()}) {
    bytes += sizeof(*field) + field->capacity();
  }
  return bytes;
}

Status ParsePriority(const v1::PredictRequest& message, Request* request) {
  switch (message.priority()) {
    case v1::PRIORITY_UNSPECIFIED:
    case v1::PRIORITY_INTERACTIVE:
      request->priority = Priority::kInteractive;
      return {};
    case v1::PRIORITY_BACKGROUND:
      request->priority = Priority::kBackground;
      return {};
    default:
      return InvalidArgument("priority: expected 0..2, got ", message.priority());
  }
}

Status ParsePacked(const Engine& engine, const v1::Packed& packed, Request* request) {
  const Schema& schema = engine.manifest().schema;
  if (packed.schema() != schema.fingerprint) {
    return {StatusCode::kFailedPrecondition,
            StrCat("packed.schema: expected ", Hex(schema.fingerprint), ", got ",
                   Hex(packed.schema()), "; ask GetModel for the schema being served")};
  }
  PackedArrays arrays;
  RETURN_IF_ERROR(View(packed.request_dense(), "packed.request_dense", &arrays.request_dense));
  RETURN_IF_ERROR(View(packed.example_dense(), "packed.example_dense", &arrays.example_dense));
  RETURN_IF_ERROR(View(packed.lengths(), "packed.lengths", &arrays.lengths));
  RETURN_IF_ERROR(View(packed.values(), "packed.values", &arrays.values));
  RETURN_IF_ERROR(View(packed.weights(), "packed.weights", &arrays.weights));
  return SplitPacked(schema, engine.limits(), arrays, request);
}

Status ParseDense(const Engine& engine, const v1::PredictRequest& message, Request* request) {
  const Schema& schema = engine.manifest().schema;
  request->dense.assign(schema.dense.size(), {});
  std::vector<bool> seen(schema.dense.size());
  for (const v1::DenseValues& input : message.dense()) {
    ASSIGN_OR_RETURN(const size_t position, FindDense(schema, engine.names(), input.name()));
    RETURN_IF_ERROR(Once(input.name(), position, &seen));
    DenseView& view = request->dense[position];
    RETURN_IF_ERROR(View(input.values(), Feature(input.name()) + "values", &view.values));
  }
  return {};
}

Status ParseSparse(const Engine& engine, const v1::PredictRequest& message, Request* request) {
  const Schema& schema = engine.manifest().schema;
  request->sparse.assign(schema.sparse.size(), {});
  std::vector<bool> seen(schema.sparse.size());
  for (const v1::SparseValues& input : message.sparse()) {
    ASSIGN_OR_RETURN(const size_t position, FindSparse(schema, engine.names(), input.name()));
    RETURN_IF_ERROR(Once(input.name(), position, &seen));
    SparseView& view = request->sparse[position];
    const std::string feature = Feature(input.name());
    RETURN_IF_ERROR(View(input.lengths(), feature + "lengths", &view.lengths));
    RETURN_IF_ERROR(View(input.values(), feature + "values", &view.values));
    RETURN_IF_ERROR(View(input.weights(), feature + "weights", &view.weights));
  }
  return {};
}

v1::Scope WireScope(Scope scope) {
  return scope == Scope::kRequest ? v1::SCOPE_REQUEST : v1::SCOPE_EXAMPLE;
}

v1::Keep WireKeep(Keep keep) {
  if (keep == Keep::kReject) return v1::KEEP_REJECT;
  return keep == Keep::kFirst ? v1::KEEP_FIRST : v1::KEEP_LAST;
}

}  // namespace

Status ParseRequest(const Engine& engine, const v1::PredictRequest& message, Request* request) {
  RETURN_IF_ERROR(CheckSize("request_id", message.request_id(), kRequestIdBytesMax));
  RETURN_IF_ERROR(CheckSize("traffic_key", message.traffic_key(), kTrafficKeyBytesMax));
  RETURN_IF_ERROR(ParsePriority(message, request));
  ASSIGN_OR_RETURN(request->outputs_wanted,
                   FindOutputs(engine.manifest().schema, engine.names(), message.outputs()));
  request->num_examples = message.num_examples();
  request->held_bytes = HeldBytes(message);
  if (message.has_packed()) {
    if (message.dense_size() + message.sparse_size() > 0) {
      return InvalidArgument("request: expected packed or named inputs, got both");
    }
    return ParsePacked(engine, message.packed(), request);
  }
  RETURN_IF_ERROR(ParseDense(engine, message, request));
  return ParseSparse(engine, message, request);
}

void FillResponse(const Manifest& manifest, const v1::PredictRequest& request,
                  const Response& response, v1::PredictResponse* message) {
  const Schema& schema = manifest.schema;
  message->set_model(manifest.model);
  message->set_version(manifest.version);
  message->set_request_id(request.request_id());
  for (const ResponseOutput& output : response.outputs) {
    const OutputSpec& spec = schema.outputs[output.output];
    v1::Output* const filled = message->add_outputs();
    filled->set_name(spec.name);
    filled->set_values(output.values.data(), output.values.size() * sizeof(float));
    filled->add_shape(spec.scope == Scope::kRequest ? 1 : request.num_examples());
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

void DescribeModel(const Manifest& manifest, const Limits& limits, uint64_t max_message_bytes,
                   v1::GetModelResponse* message) {
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
  message->mutable_limits()->set_max_examples(limits.max_examples);
  message->mutable_limits()->set_max_ids(limits.max_ids);
  message->mutable_limits()->set_max_message_bytes(max_message_bytes);
}

std::string GetModelSerialized(const Manifest& manifest, const Limits& limits) {
  v1::GetModelResponse message;
  // The message is not sent over gRPC, so only protobuf's own limit applies.
  DescribeModel(manifest, limits, std::numeric_limits<int32_t>::max(), &message);
  return message.SerializeAsString();
}

}  // namespace embershard::rpc
