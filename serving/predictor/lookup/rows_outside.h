// Rows that are not of a range. Included by the kernels' files: compiled for each width of vectors.

#pragma once

#include <cstddef>
#include <cstdint>

namespace embershard {

// Whether one of `size` rows is not in begin .. end - 1. Sign bits gathered without a branch: a
// loop that compilers turn into vectors. With internal linkage, as it is compiled for newer
// processors.
static inline bool AnyOutside(const int64_t* rows, size_t size, int64_t begin, int64_t end) {
  const auto first = static_cast<uint64_t>(begin);
  const auto last = static_cast<uint64_t>(end - 1);
  uint64_t outside = 0;
  for (size_t i = 0; i < size; ++i) {
    const auto bits = static_cast<uint64_t>(rows[i]);
    outside |= (bits - first) | (last - bits);
  }
  return (outside >> 63) != 0;
}

}  // namespace embershard
