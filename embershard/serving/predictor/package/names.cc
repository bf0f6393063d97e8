#include "package/names.h"

#include <algorithm>

namespace embershard {
namespace {

constexpr size_t kPlainNameMax = 128;
constexpr size_t kInputNameMax = 256;
constexpr size_t kPathPartsMax = 8;

bool IsWordCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

}  // namespace

bool IsPlainName(std::string_view text) {
  return !text.empty() && text.size() <= kPlainNameMax && IsWordCharacter(text[0]) &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return IsWordCharacter(c) || c == '.' || c == '-'; });
}

bool IsFilePath(std::string_view text) {
  for (size_t parts = 1; parts <= kPathPartsMax; ++parts) {
    const size_t end = text.find('/');
    if (!IsPlainName(text.substr(0, end))) return false;
    if (end == std::string_view::npos) return true;
    text.remove_prefix(end + 1);
  }
  return false;
}

bool IsInputName(std::string_view text) {
  return !text.empty() && text.size() <= kInputNameMax &&
         std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; });
}

bool IsHex(std::string_view text, size_t size) {
  return text.size() == size && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

}  // namespace embershard
