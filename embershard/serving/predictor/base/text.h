// Text of messages: put together from parts, and what is left of what came from somewhere else.

#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>

namespace embershard {

// The parts, one after another; numbers as std::to_string() writes them.
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

// The beginning of `text`, at most `bytes_max` bytes, cut between two characters of UTF-8.
std::string_view CutUtf8(std::string_view text, size_t bytes_max);

// A message as every protocol carries it: one that clients' limits on headers might not let through
// is cut.
std::string CutMessage(const std::string& message);

// The first `chars_max` characters, with '?' for each that is no printable ASCII (space to '~').
std::string PrintableAscii(std::string_view text, size_t chars_max = std::string_view::npos);

// `text` with each control character (C0, DEL, C1), line separator and bidirectional override of
// Unicode escaped as JSON escapes it. The rest, bytes that are no UTF-8 included, stays as it is.
std::string EscapeControls(std::string text);

}  // namespace embershard
