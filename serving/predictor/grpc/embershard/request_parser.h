// From a PredictRequest message to a Request.

#ifndef EMBERSHARD_GRPC_EMBERSHARD_REQUEST_PARSER_H_
#define EMBERSHARD_GRPC_EMBERSHARD_REQUEST_PARSER_H_

#include "base/status.h"
#include "batching/request.h"
#include "embershard/v1/predictor.pb.h"
#include "engine/engine.h"

namespace embershard::rpc {

// An id comes back with its answer, so that its size is one of what clients wait to read.
inline constexpr size_t kRequestIdBytesMax = 1024;

// A message whose text is no UTF-8 is refused, where it is parsed. Without this protobuf also
// writes a line to standard error about each.
void SilenceProtobuf();

// Costs nothing to make. Immutable: any thread may call.
class RequestParser {
 public:
  // Does not own `engine`, which must outlive it.
  explicit RequestParser(const Engine* engine)
      : engine_(engine), schema_(engine->manifest().schema) {}

  // Fills num_examples, priority, the wanted outputs, held_bytes and the views, which lie over the
  // bytes of `message`: it must outlive their use. Refuses what the wire alone shows to be
  // wrong: names of inputs, the schema's fingerprint, both forms in one request, bytes that are
  // not whole values. The rest is left to CheckRequest().
  Status Parse(const v1::PredictRequest& message, Request* request) const;

 private:
  Status ParsePacked(const v1::Packed& packed, Request* request) const;
  Status ParseDense(const v1::PredictRequest& message, Request* request) const;
  Status ParseSparse(const v1::PredictRequest& message, Request* request) const;
  static Status ParsePriority(const v1::PredictRequest& message, Request* request);

  const Engine* const engine_;
  const Schema& schema_;
};

}  // namespace embershard::rpc

#endif  // EMBERSHARD_GRPC_EMBERSHARD_REQUEST_PARSER_H_
