// What the server says of itself and its models, in the messages of the Open Inference Protocol.

#pragma once

#include <vector>

#include "engine/engine.h"
#include "engine/served_models.h"
#include "inference/open_inference.pb.h"

namespace embershard::rpc {

void DescribeServer(inference::ServerMetadataResponse* message);

// Its tensors, and all versions of it that are served.
void DescribeModel(const Engine& engine, const ServedModels& served,
                   inference::ModelMetadataResponse* message);

// The same tensors. All inputs are optional, since each may be given by name or packed.
// `default_timeout_us`: of requests whose clients state none.
void DescribeConfig(const Engine& engine, uint64_t default_timeout_us,
                    inference::ModelConfig* config);

// What the version has counted since its start, of calls in all protocols.
void DescribeStatistics(const Engine& engine, inference::ModelStatistics* statistics);

// `only_ready`: leaves out the others.
void DescribeRepository(const std::vector<ServedVersion>& versions, bool only_ready,
                        inference::RepositoryIndexResponse* message);

}  // namespace embershard::rpc
