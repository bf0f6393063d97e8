// From a PredictRequest message to a Request.

#pragma once

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

// Fills num_examples, priority, the wanted outputs, held_bytes and the views, which lie over the
// bytes of `message`: it must outlive their use. Refuses what the wire alone shows to be
// wrong: names of inputs, the schema's fingerprint, both forms in one request, bytes that are
// not whole values. The rest is left to CheckRequest().
Status ParseRequest(const Engine& engine, const v1::PredictRequest& message, Request* request);

}  // namespace embershard::rpc
