// What this backend refuses of a model's config.pbtxt. docs/triton.md is the manual.

#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"
#include "package/manifest.h"

namespace embershard::triton {

inline constexpr char kConfigFile[] = "config.pbtxt";

// A member of an object, null where there is none.
const nlohmann::json& Member(const nlohmann::json& object, const char* key);

// Empty where the value is no string.
std::string TextOf(const nlohmann::json& value);

// Whether it says how many requests a batch may have: their tensors then have a 1 before the shape
// that is stated.
bool HasBatchSize(const nlohmann::json& config);

// Refuses what Triton would load and then answer wrongly or not at all: the response cache,
// decoupled responses and sequences.
Status CheckFeatures(const nlohmann::json& config);

// Refuses stated tensors that are not the package's: of another name, type or shape; and stated
// inputs that leave no way to send one that has no default, by its own name or packed. Other inputs
// may be missing. A configuration without tensors passes.
Status CheckTensors(const nlohmann::json& config, const Schema& schema);

}  // namespace embershard::triton
