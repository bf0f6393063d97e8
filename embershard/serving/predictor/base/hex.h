#pragma once

#include <charconv>
#include <cstdint>
#include <string>

namespace embershard {

// 16 hex digits.
inline std::string Hex(uint64_t value) {
  char digits[16];
  const std::string text(digits, std::to_chars(digits, digits + sizeof(digits), value, 16).ptr);
  return std::string(sizeof(digits) - text.size(), '0') + text;
}

}  // namespace embershard
