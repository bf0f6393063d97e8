#include "base/text.h"

namespace embershard {
namespace {

// Headers may hold 8 KiB by default, where a byte of a message takes up to three.
constexpr size_t kMessageBytesMax = 2000;

}  // namespace

std::string_view CutUtf8(std::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  size_t end = bytes_max;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

std::string CutMessage(const std::string& message) {
  if (message.size() <= kMessageBytesMax) return message;
  return std::string(CutUtf8(message, kMessageBytesMax)) + "...";
}

std::string PrintableAscii(std::string_view text, size_t chars_max) {
  std::string printable(text.substr(0, chars_max));
  for (char& character : printable) {
    if (character < ' ' || character > '~') character = '?';
  }
  return printable;
}

}  // namespace embershard
