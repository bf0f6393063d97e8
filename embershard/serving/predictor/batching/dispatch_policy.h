// Decides when another batch is dispatched while batches run in other slots. No clock, no lock, no
// thread. Waiting for a running batch merges requests with later ones: two small batches cost more
// than one large one, and the other cores are busy reading and answering requests.

#pragma once

#include <chrono>
#include <cstddef>

#include "base/clock.h"

namespace embershard {

// The state to decide on: at least one request or chunk is queued, a slot is free, a batch runs.
struct DispatchQuestion {
  size_t slots = 2;
  size_t free = 1;
  bool has_chunk = false;            // A chunk of a split request is queued.
  bool fills_batch = false;          // The queued requests fill a batch.
  size_t requests = 1;               // Queued requests and chunks.
  std::chrono::nanoseconds work{0};  // Time that all take as one batch. Zero: not known.
  Clock::time_point deadline = Clock::time_point::max();  // Earliest queued deadline.
  Clock::time_point first_end;  // Predicted end of the first running batch; may be in the past.
  Clock::time_point now;
};

// Requests that take at least this long each gain nothing from merging.
inline constexpr std::chrono::microseconds kLongRequest{1000};
// Dispatch a batch if queued work takes at least kDispatchWork, if no slot will be free within
// kDispatchWait, or if the next one is late by as much.
inline constexpr std::chrono::microseconds kDispatchWork{2000};
inline constexpr std::chrono::microseconds kDispatchWait{2000};
// Factor of both times if at least half of the slots run.
inline constexpr int kLastHalfTimes = 4;

// True for a chunk, a full batch, long requests, much work or work of unknown length, and if
// requests would wait too long or miss a deadline otherwise.
bool ShouldDispatch(const DispatchQuestion& question);

Clock::time_point NextDispatchTime(const DispatchQuestion& question);

}  // namespace embershard
