// Detects fork(): a child has none of the threads that were started before, and nobody unlocks what
// they had locked.

#pragma once

#include <cstdint>

namespace embershard {

// Number of fork() calls between the process that first called this and this one. Any thread; costs
// a load.
uint64_t ForkCount();

}  // namespace embershard
