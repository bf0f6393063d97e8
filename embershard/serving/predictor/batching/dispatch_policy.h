// When a batch is dispatched to a further slot, while others run. No clock, no lock, no thread.
//
// Requests that wait for another slot that is soon free are merged with what comes meanwhile: of
// small requests, two small batches cost more than one large one, and as many cores are busy with
// reading and answering them.

#pragma once

#include <chrono>
#include <cstddef>

#include "base/clock.h"

namespace embershard {

// Requests queued beside a free slot, while others run. At least one request or chunk does.
struct DispatchQuestion {
  size_t slots = 2;
  size_t free = 1;
  bool has_chunk = false;            // Of a request that is cut.
  bool fills_batch = false;          // All together.
  size_t requests = 1;               // Or chunks.
  std::chrono::nanoseconds work{0};  // How long all will take as one batch. Zero: not known.
  Clock::time_point deadline = Clock::time_point::max();  // The earliest.
  Clock::time_point first_end;  // When the first slot that runs will be free, or should have been.
  Clock::time_point now;
};

// Requests that each take so long gain nothing by being merged.
inline constexpr std::chrono::microseconds kLongRequest{1000};
// So much work begins a slot, and so long it waits for another at most, or for one that is late.
inline constexpr std::chrono::microseconds kMuchWork{2000};
inline constexpr std::chrono::microseconds kLongWait{2000};
// The last two are so much longer where half of the slots run.
inline constexpr int kLastHalfTimes = 4;

// Whether a batch is dispatched: for a chunk, a full batch, long requests, much work or what is not
// known, for who would have to wait long, and for who would miss a deadline by waiting.
bool Dispatches(const DispatchQuestion& question);

// When to ask again, if nothing else happens: requests queued beside a slot that is late, or for
// which it is time, must not wait for a request that may never come.
Clock::time_point AsksAgain(const DispatchQuestion& question);

}  // namespace embershard
