// Messages as bytes. Free of protobuf on this side.

#ifndef EMBERSHARD_GRPC_EMBERSHARD_SERIALIZED_H_
#define EMBERSHARD_GRPC_EMBERSHARD_SERIALIZED_H_

#include <string>

#include "engine/engine.h"

namespace embershard::rpc {

// The serialized GetModelResponse.
std::string GetModelSerialized(const Engine& engine);

}  // namespace embershard::rpc

#endif  // EMBERSHARD_GRPC_EMBERSHARD_SERIALIZED_H_
