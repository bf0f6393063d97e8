// Threads that compute for long, and those beside them that have little to do.

#ifndef EMBERSHARD_BASE_LONG_TURNS_H_
#define EMBERSHARD_BASE_LONG_TURNS_H_

#include <chrono>

namespace embershard {

// Lets the calling thread, and those that it starts, run for so long at a time where it shares a
// processor. It gets no more of the processor than before, in fewer and longer turns; but a thread
// of shorter turns that wakes, and by default all are, runs at once and does not wait for the end
// of this one's. False where the system knows no such thing, or the thread is not scheduled as
// threads are by default. Linux heeds it from 6.12 on, between 0.1 ms and 100 ms; before, this is
// true and changes nothing.
bool TakeLongTurns(std::chrono::nanoseconds turn);

}  // namespace embershard

#endif  // EMBERSHARD_BASE_LONG_TURNS_H_
