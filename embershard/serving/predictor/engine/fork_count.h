// Detects fork(): a child process has none of the earlier threads, and mutexes that they had locked
// stay locked.

#pragma once

#include <cstdint>

namespace embershard {

// Number of forks between the process that first called this and the current one. Thread-safe;
// costs one load.
uint64_t ForkCount();

}  // namespace embershard
