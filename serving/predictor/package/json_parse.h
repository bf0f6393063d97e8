// JSON as every reader reads it alike: UTF-8, no duplicate keys, finite numbers of 64 bits.

#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/status.h"

namespace embershard {

inline constexpr size_t kJsonBytesMax = size_t{64} << 20;
inline constexpr size_t kJsonDepthMax = 32;

// Fills `document`. Refused, with field `json`: not UTF-8, a byte order mark, a
// syntax error, a key twice in one object, NaN or infinity, an integer beyond 64
// bits, deeper than kJsonDepthMax, larger than kJsonBytesMax.
Status ParseJson(std::string_view text, std::string_view file, nlohmann::json* document);

// The one spelling that digests are taken of: sorted keys, no spaces, UTF-8,
// numbers as Python's json writes them.
std::string CanonicalJson(const nlohmann::json& document);

}  // namespace embershard
