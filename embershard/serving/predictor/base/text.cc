#include "base/text.h"

#include <algorithm>
#include <cstdint>

namespace embershard {
namespace {

// Headers may hold 8 KiB by default, in which a byte of a message takes up to three bytes.
constexpr size_t kMessageBytesMax = 2000;

// Code point and bytes of the control character at the start of a text; 0 bytes if there is none.
struct Control {
  uint32_t code_point = 0;
  size_t bytes = 0;
};

Control ControlAt(std::string_view text) {
  const auto byte = [text](size_t i) -> uint32_t {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  if (byte(0) < 0x20 || byte(0) == 0x7F) return {.code_point = byte(0), .bytes = 1};
  if (byte(0) == 0xC2 && byte(1) >= 0x80 && byte(1) < 0xA0) {
    return {.code_point = byte(1), .bytes = 2};
  }
  if (byte(0) != 0xE2 || (byte(1) != 0x80 && byte(1) != 0x81)) return {};
  const uint32_t code_point = 0x2000 + ((byte(1) & 0x3F) << 6) + (byte(2) & 0x3F);
  const bool escaped = (code_point >= 0x2028 && code_point <= 0x202E) ||
                       (code_point >= 0x2066 && code_point <= 0x2069);
  return escaped && byte(2) >= 0x80 ? Control{.code_point = code_point, .bytes = 3} : Control{};
}

std::string JsonEscape(uint32_t code_point) {
  switch (code_point) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      break;
  }
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string escape = "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) escape += kDigits[(code_point >> shift) & 15];
  return escape;
}

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

std::string EscapeControls(std::string text) {
  const auto may_begin_one = [](char character) {
    return (character >= 0 && character < ' ') || character == '\x7F' || character == '\xC2' ||
           character == '\xE2';
  };
  if (std::ranges::none_of(text, may_begin_one)) return text;
  std::string escaped;
  for (std::string_view rest = text; !rest.empty();) {
    const Control control = ControlAt(rest);
    escaped += control.bytes > 0 ? JsonEscape(control.code_point) : std::string(1, rest[0]);
    rest.remove_prefix(control.bytes > 0 ? control.bytes : 1);
  }
  return escaped;
}

}  // namespace embershard
