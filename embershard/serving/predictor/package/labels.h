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

// What requests get that name neither version nor label, where no other rule is given.
inline constexpr char kStableLabel[] = "stable";
// What gets copies of requests, and whose answers nobody sees.
inline constexpr char kShadowLabel[] = "shadow";

// Versions by label: "stable", "canary" or "shadow".
using Labels = std::map<std::string, int64_t, std::less<>>;

bool IsLabel(std::string_view text);

// Refusals are kBadPackage and name the field.
Result<Labels> ParseLabels(std::string_view json);

// The labels of the model in that folder; none where it has no such file.
Result<Labels> ReadLabels(const std::filesystem::path& model_folder);

}  // namespace embershard
