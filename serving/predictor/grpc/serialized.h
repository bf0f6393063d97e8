// The service without a port: messages as bytes in, messages as bytes out. Free of
// protobuf on this side.

#ifndef EMBERSHARD_GRPC_SERIALIZED_H_
#define EMBERSHARD_GRPC_SERIALIZED_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"
#include "engine/served_models.h"

namespace embershard {

// Runs serialized PredictRequest messages as one batch (Engine::PredictMerged): for
// each the serialized PredictResponse, or why it was refused. Any thread.
// REQUIRES: one version of one model is served.
std::vector<Result<std::string>> PredictSerialized(const ServedModels& served,
                                                   const std::vector<std::string>& requests);

// The serialized GetModelResponse.
std::string GetModelSerialized(const Engine& engine);

}  // namespace embershard

#endif  // EMBERSHARD_GRPC_SERIALIZED_H_
