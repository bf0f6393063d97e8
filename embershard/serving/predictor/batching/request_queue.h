// Requests that wait, earliest deadline first; of equal deadlines, in the order they came.
// No clock, no lock, no thread.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "base/clock.h"
#include "batching/batch_costs.h"
#include "batching/request.h"

namespace embershard {

// Not thread-safe. One that comes with the latest deadline, as most do, costs next to nothing;
// any other moves those behind it, or those before it, by one place.
class RequestQueue {
 public:
  // Takes ownership, unless memory runs out (std::bad_alloc): then nothing has changed.
  void Add(std::unique_ptr<Request>& request);

  bool empty() const { return waiting_.empty(); }

  // The one with the earliest deadline. REQUIRES: not empty.
  const Request& first() const { return *waiting_.front().request; }
  std::unique_ptr<Request> TakeFirst();

  // The earliest of which something may run: itself, or where it is cut a chunk. Null: none. Looks
  // at the places before it: empty ones, and wholes whose chunks have left and run.
  const Request* next() const;

  // The next chunk of that one, which stays. REQUIRES: `request` waits here, and has one.
  std::unique_ptr<Request> TakeChunk(const Request& request);

  // What has a later deadline than this, each chunk a request. Looks at no more than the last 1024
  // places: what is before those is taken to be due before.
  BatchSize DueAfter(Clock::time_point deadline) const;

  // Out of its turn. Empty places are never many more than the others.
  // REQUIRES: `request` waits here.
  std::unique_ptr<Request> Take(const Request& request);

 private:
  struct Place {
    Clock::time_point deadline;
    uint64_t turn = 0;
    BatchSize size;
    std::unique_ptr<Request> request;  // Null: was taken out of its turn.
  };

  std::deque<Place>::iterator PlaceOf(const Request& request);
  void DropEmpty();

  std::deque<Place> waiting_;  // By deadline, then turn; the first is not empty.
  size_t empty_places_ = 0;
  uint64_t turns_ = 0;
};

}  // namespace embershard
