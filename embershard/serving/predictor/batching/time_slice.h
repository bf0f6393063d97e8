// The scheduler time slice of threads that compute for long beside threads that do not.

#pragma once

#include <chrono>

namespace embershard {

// Lets the calling thread, and those that it starts, run for so long at a time where it shares a
// processor. It gets no more of the processor than before, in fewer and longer time slices. A
// thread of shorter ones that wakes, and by default all are, as a rule runs at once and does not
// wait for the end of this one's; threads of long time slices wait the longer for each other. False
// where the system knows or allows no such thing, or the thread is not scheduled as threads are by
// default. Linux heeds it from 6.12 on, between 0.1 ms and 100 ms; before, this is true and changes
// nothing.
bool SetTimeSlice(std::chrono::nanoseconds slice);

}  // namespace embershard
