// How a package is refused: the file, the field, what was expected and what is there.
// docs/format.md lists the fields that are about a file as a whole.

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

// `text`, cut between characters where it is long.
std::string Shown(std::string_view text);

}  // namespace embershard
