#include "package/refusal.h"

namespace embershard {
namespace {

constexpr size_t kShown = 120;

}  // namespace

std::string Shown(std::string_view text) {
  if (text.size() <= kShown) return std::string(text);
  size_t end = kShown - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
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

std::string Printable(std::string_view text) {
  std::string printable(text);
  for (char& each : printable) {
    if (each < ' ' || each > '~') each = '?';
  }
  return printable;
}

}  // namespace embershard
