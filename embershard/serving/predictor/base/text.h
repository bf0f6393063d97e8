#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>

namespace embershard {

// Numbers are written by std::to_string().
template <class... Parts>
std::string StrCat(const Parts&... parts) {
  std::string text;
  const auto append = [&text](const auto& part) {
    if constexpr (std::is_convertible_v<decltype(part), std::string_view>) {
      text += part;
    } else {
      text += std::to_string(part);
    }
  };
  (append(parts), ...);
  return text;
}

// The start of `text`: at most `bytes_max` bytes, cut between two UTF-8 characters.
std::string_view CutUtf8(std::string_view text, size_t bytes_max);

// Truncates a message that would exceed clients' limits on headers.
std::string CutMessage(const std::string& message);

// The first `chars_max` characters, with '?' for those outside printable ASCII (space to '~').
std::string PrintableAscii(std::string_view text, size_t chars_max = std::string_view::npos);

// Escapes control characters (C0, DEL, C1), line separators and bidirectional overrides as JSON
// does. Other bytes, including invalid UTF-8, stay unchanged.
std::string EscapeControls(std::string text);

}  // namespace embershard
