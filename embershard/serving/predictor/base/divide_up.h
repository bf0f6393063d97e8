#pragma once

#include <cstdint>

namespace embershard {

// How many parts of at most `by` make up `number`. REQUIRES: by > 0.
inline uint64_t DivideUp(uint64_t number, uint64_t by) { return (number + by - 1) / by; }

}  // namespace embershard
