// Functions have internal linkage, because files compiled for newer processors include this.

#pragma once

#include <cstddef>
#include <cstdint>

namespace embershard {

constexpr size_t kLineBytes = 64;

// Locality argument of __builtin_prefetch.
constexpr int kFirstCache = 3;
constexpr int kSecondCache = 2;

// Prefetches [begin, end), which need not be valid memory. If `begin` is a multiple of 4, this
// covers every cache line. The number of prefetches does not depend on the alignment, because a
// branch on it would be mispredicted. Must be inlined: GCC 12 drops calls without other effects.
template <int kCache = kFirstCache>
[[gnu::always_inline]] static inline void Prefetch(const std::byte* begin, const std::byte* end) {
  __builtin_prefetch(begin, 0, kCache);
  __builtin_prefetch(end - 1, 0, kCache);
  for (const std::byte* line = begin + kLineBytes; line < end - 4; line += kLineBytes) {
    __builtin_prefetch(line, 0, kCache);
  }
}

}  // namespace embershard
