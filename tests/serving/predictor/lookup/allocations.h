// A counter of what is allocated, by every thread of the program that links to it.

#ifndef EMBERSHARD_TESTS_LOOKUP_ALLOCATIONS_H_
#define EMBERSHARD_TESTS_LOOKUP_ALLOCATIONS_H_

#include <cstddef>

namespace embershard::testing {

// Calls of operator new since the program began.
size_t AllocationsSoFar();

}  // namespace embershard::testing

#endif  // EMBERSHARD_TESTS_LOOKUP_ALLOCATIONS_H_
