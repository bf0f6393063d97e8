// Validates a model's config.pbtxt; see docs/triton.md.

#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"
#include "package/manifest.h"

namespace embershard::triton {

inline constexpr char kConfigFile[] = "config.pbtxt";

// Null if the member is missing.
const nlohmann::json& Member(const nlohmann::json& object, const char* key);

// Empty if the value is not a string.
std::string TextOf(const nlohmann::json& value);

// True if the configuration sets a batch size. Tensors then have a leading 1 that the stated shapes
// lack.
bool HasBatchSize(const nlohmann::json& config);

// Refuses features with which Triton would answer wrongly or not at all: the response cache,
// decoupled responses and sequences.
Status CheckFeatures(const nlohmann::json& config);

// Refuses tensors whose name, type or shape differs from the package's, and lists of inputs that
// leave out one without a default, both by its name and packed. Other inputs may be missing. A
// configuration without tensors is valid.
Status CheckTensors(const nlohmann::json& config, const Schema& schema);

}  // namespace embershard::triton
