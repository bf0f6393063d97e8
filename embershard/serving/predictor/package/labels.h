// Labels of a model's versions: <repository>/<model>/labels.json.

#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/status.h"

namespace embershard {

inline constexpr char kLabelsFile[] = "labels.json";

// Serves requests that name neither a version nor a label, unless another rule is configured.
inline constexpr char kStableLabel[] = "stable";
// Receives copies of requests, and its answers are discarded.
inline constexpr char kShadowLabel[] = "shadow";

using Labels = std::map<std::string, int64_t, std::less<>>;

bool IsLabel(std::string_view text);

// Fails with kBadPackage; the message names the field.
Result<Labels> ParseLabels(std::string_view json);

// Empty if the model has no labels file.
Result<Labels> ReadLabels(const std::filesystem::path& model_folder);

}  // namespace embershard
