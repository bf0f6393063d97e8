#pragma once

#include <cstddef>
#include <cstdint>

namespace embershard {

// How many parts of at most `by` make up `number`. REQUIRES: by > 0.
inline uint64_t DivideUp(uint64_t number, uint64_t by) { return (number + by - 1) / by; }

// The smallest multiple of `multiple` that is at least `number`. REQUIRES: multiple > 0.
constexpr size_t RoundUp(size_t number, size_t multiple) {
  return (number + multiple - 1) / multiple * multiple;
}

}  // namespace embershard
