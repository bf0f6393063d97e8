#include "package/refusal.h"

#include "base/text.h"

namespace embershard {
namespace {

constexpr size_t kShown = 120;

}  // namespace

std::string Shown(std::string_view text) {
  if (text.size() <= kShown) return std::string(text);
  return std::string(CutUtf8(text, kShown - 3)) + "...";
}

Status Refusal(std::string_view file, std::string_view field, std::string_view expected,
               std::string_view got) {
  return BadPackage(file, ": ", field, ": expected ", Shown(expected), ", got ", Shown(got));
}

Status Unexpected(std::string_view file, std::string_view field, std::string_view what) {
  return BadPackage(file, ": ", field, ": unexpected ", what);
}

}  // namespace embershard
