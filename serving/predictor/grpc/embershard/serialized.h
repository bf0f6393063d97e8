// The service without a port: messages as bytes in, messages as bytes out. Free of
// protobuf on this side.

#ifndef EMBERSHARD_GRPC_EMBERSHARD_SERIALIZED_H_
#define EMBERSHARD_GRPC_EMBERSHARD_SERIALIZED_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"
#include "engine/served_models.h"

namespace embershard::rpc {

// Runs serialized PredictRequest messages together (Engine::PredictMerged): for
// each the serialized PredictResponse, or why it was refused. Any thread.
// REQUIRES: one version of one model is served.
std::vector<Result<std::string>> PredictSerialized(const ServedModels& served,
                                                   std::span<const std::string_view> requests);

// The serialized GetModelResponse.
std::string GetModelSerialized(const Engine& engine);

}  // namespace embershard::rpc

#endif  // EMBERSHARD_GRPC_EMBERSHARD_SERIALIZED_H_
