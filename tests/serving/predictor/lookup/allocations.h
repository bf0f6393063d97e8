// A counter of what is allocated, by every thread of the program that links to it.

#pragma once

#include <cstddef>

namespace embershard::testing {

// Calls of operator new since the program began.
size_t AllocationsSoFar();

}  // namespace embershard::testing
