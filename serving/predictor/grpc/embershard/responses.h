// From what the engine says to the wire's messages. Free of protobuf on this side.

#pragma once

#include <cstdint>
#include <string>

#include "batching/request.h"
#include "engine/engine.h"

namespace embershard::v1 {
class GetModelResponse;
class PredictRequest;
class PredictResponse;
}  // namespace embershard::v1

namespace embershard::rpc {

// `asked` is the message that `response` answers.
void FillResponse(const Manifest& manifest, const v1::PredictRequest& asked,
                  const Response& response, v1::PredictResponse* message);

void DescribeModel(const Engine& engine, uint64_t max_message_bytes, v1::GetModelResponse* message);

// The serialized GetModelResponse.
std::string GetModelSerialized(const Engine& engine);

}  // namespace embershard::rpc
