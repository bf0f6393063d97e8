#pragma once

#include <chrono>

namespace embershard {

// Sets the time slice of the calling thread and of threads that it starts. Its share of the
// processor stays the same, in fewer and longer slices. A thread with a shorter slice, such as the
// default, usually runs at once when it wakes; threads with long slices wait longer for each other.
// Returns false if the system does not support or allow it, or if the thread's scheduling policy is
// not the default. Linux uses the value since 6.12, between 0.1 ms and 100 ms; older kernels accept
// and ignore it.
bool SetTimeSlice(std::chrono::nanoseconds slice);

}  // namespace embershard
