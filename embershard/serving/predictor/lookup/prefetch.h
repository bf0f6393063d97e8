// Asking memory for what is read later.
//
// With internal linkage: files that are compiled for newer processors include this.

#pragma once

#include <cstddef>
#include <cstdint>

namespace embershard {

constexpr size_t kLineBytes = 64;

// Of __builtin_prefetch: which cache lines come to.
constexpr int kFirstCache = 3;
constexpr int kSecondCache = 2;

// Asks for the lines of [begin, end), which need not be there: of rows at multiples of 4 bytes all
// of them. As many times whatever the alignment: a branch on it would be mispredicted. Inlined, or
// GCC 12 finds that nothing comes of it and drops it.
template <int kCache = kFirstCache>
[[gnu::always_inline]] static inline void Prefetch(const std::byte* begin, const std::byte* end) {
  __builtin_prefetch(begin, 0, kCache);
  __builtin_prefetch(end - 1, 0, kCache);
  for (const std::byte* line = begin + kLineBytes; line < end - 4; line += kLineBytes) {
    __builtin_prefetch(line, 0, kCache);
  }
}

}  // namespace embershard
