// Messages as bytes. Free of protobuf on this side.

#pragma once

#include <string>

#include "engine/engine.h"

namespace embershard::rpc {

// The serialized GetModelResponse.
std::string GetModelSerialized(const Engine& engine);

}  // namespace embershard::rpc
