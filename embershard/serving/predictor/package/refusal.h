// Errors for invalid packages. They name the file, the field, the expected value and the actual
// value. For an error of a whole file, such as its size or digest, the field is a word of the list
// in docs/format.md.

#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace embershard {

// kBadPackage, "<file>: <field>: expected <expected>, got <got>"; long parts are cut.
Status Refusal(std::string_view file, std::string_view field, std::string_view expected,
               std::string_view got);

// kBadPackage, "<file>: <field>: unexpected <what>".
Status Unexpected(std::string_view file, std::string_view field, std::string_view what);

// Cuts long text at a character boundary.
std::string Shown(std::string_view text);

}  // namespace embershard
