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
  std::string message(file);
  message.append(": ").append(field);
  message.append(": expected ").append(Shown(expected));
  message.append(", got ").append(Shown(got));
  return BadPackage(std::move(message));
}

Status Unexpected(std::string_view file, std::string_view field, std::string_view what) {
  std::string message(file);
  message.append(": ").append(field).append(": unexpected ").append(what);
  return BadPackage(std::move(message));
}

}  // namespace embershard
