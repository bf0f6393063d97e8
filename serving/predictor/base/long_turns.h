// Threads that compute for long, and those beside them that have little to do.

#ifndef EMBERSHARD_BASE_LONG_TURNS_H_
#define EMBERSHARD_BASE_LONG_TURNS_H_

#include <chrono>

namespace embershard {

// Lets the calling thread, and those that it starts, run for so long at a time where it shares a
// processor. It gets no more of the processor than before, in fewer and longer turns. A thread of
// shorter turns that wakes, and by default all are, as a rule runs at once and does not wait for
// the end of this one's; threads of long turns wait the longer for each other. False where the
// system knows or allows no such thing, or the thread is not scheduled as threads are by default.
// Linux heeds it from 6.12 on, between 0.1 ms and 100 ms; before, this is true and changes nothing.
bool TakeLongTurns(std::chrono::nanoseconds turn);

}  // namespace embershard

#endif  // EMBERSHARD_BASE_LONG_TURNS_H_
