// From what the engine says to the wire's messages.

#pragma once

#include <cstdint>

#include "batching/request.h"
#include "embershard/v1/predictor.pb.h"
#include "engine/engine.h"

namespace embershard::rpc {

// `asked` is the message that `response` answers.
void FillResponse(const Manifest& manifest, const v1::PredictRequest& asked,
                  const Response& response, v1::PredictResponse* message);

void DescribeModel(const Engine& engine, uint64_t max_message_bytes, v1::GetModelResponse* message);

}  // namespace embershard::rpc
