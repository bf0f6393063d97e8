#pragma once

#include <string_view>

namespace embershard {

// Names that become part of a path ("movielens", "user", "default"): a letter, digit
// or underscore, then up to 127 more of those, dots or dashes.
bool IsPlainName(std::string_view text);

// A path inside the package: one to eight plain names joined by '/'. It is never absolute and never
// leads out of the package.
bool IsFilePath(std::string_view text);

// Names of inputs and outputs: 1 .. 256 bytes without control characters.
bool IsInputName(std::string_view text);

// `size` lower-case hex digits.
bool IsHex(std::string_view text, size_t size);

}  // namespace embershard
