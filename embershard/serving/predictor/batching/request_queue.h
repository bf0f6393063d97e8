// Queued requests, earliest deadline first; those with equal deadlines in the order of arrival.
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

// Not thread-safe. Adding a request with the latest deadline, the usual case, costs next to
// nothing. Any other addition moves the requests after it, or those before it, by one place.
class RequestQueue {
 public:
  // Takes ownership. If memory runs out (std::bad_alloc), nothing changes.
  void Add(std::unique_ptr<Request>& request);

  bool empty() const { return waiting_.empty(); }

  // The request with the earliest deadline. REQUIRES: not empty.
  const Request& first() const { return *waiting_.front().request; }
  std::unique_ptr<Request> TakeFirst();

  // The earliest request of which something can run: the request, or a chunk of a split one. Null:
  // none. Takes time for each place before it: empty ones, and split requests without chunks left.
  const Request* next() const;

  // REQUIRES: `request` is queued here and has a chunk left.
  std::unique_ptr<Request> TakeChunk(const Request& request);

  // Size of the requests with a later deadline, each chunk counted as a request. Examines only the
  // last 1024 places and assumes that those before them are due earlier.
  BatchSize DueAfter(Clock::time_point deadline) const;

  // Removes a request out of order and leaves an empty place. There are never many more empty
  // places than others. REQUIRES: `request` is queued here.
  std::unique_ptr<Request> Take(const Request& request);

 private:
  struct Place {
    Clock::time_point deadline;
    uint64_t turn = 0;
    BatchSize size;
    std::unique_ptr<Request> request;  // Null: removed out of order.
  };

  std::deque<Place>::iterator PlaceOf(const Request& request);
  void DropEmpty();

  std::deque<Place> waiting_;  // By deadline, then turn; the first place is never an empty one.
  size_t empty_places_ = 0;
  uint64_t turns_ = 0;
};

}  // namespace embershard
