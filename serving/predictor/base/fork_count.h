// Whether fork() has made this process since: then none of the threads that were started before is
// in it, and nobody unlocks what they had locked.

#pragma once

#include <cstdint>

namespace embershard {

// How many calls of fork() lie between this process and the one that called this first. Differs
// from what it was before a fork() in the child alone. Any thread; costs a load.
uint64_t ForkCount();

}  // namespace embershard
