// Which waiting requests form the next batch. No clock, no lock, no thread.

#ifndef EMBERSHARD_BATCHING_BATCH_FORMER_H_
#define EMBERSHARD_BATCHING_BATCH_FORMER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "batching/batching_options.h"
#include "batching/forecast.h"
#include "batching/request.h"
#include "batching/waiting_line.h"

namespace embershard {

enum class Admission {
  kAccepted,
  kTooLarge,   // Exceeds a batch, or the queue's bytes. Retrying cannot help.
  kQueueFull,  // Retry after a pause.
  kExpired,    // Its deadline has passed.
  kNoTime,     // Its deadline would pass before it has run. Retry after a pause.
  kStopped,    // Retry on another replica.
};

using Batch = std::vector<std::unique_ptr<Request>>;

// What leaves the queue at one moment. Each of the requests is still to be answered.
struct Due {
  Batch batch;                      // To run.
  Batch expired;                    // Not worth running: the deadline has passed.
  Batch abandoned;                  // Not worth running: the client has left.
  std::unique_ptr<Request> failed;  // Given up, because memory has run out; else null.
};

// Sums over requests.
struct QueueSize {
  size_t examples = 0;
  uint64_t ids = 0;
  uint64_t bytes = 0;
  size_t requests = 0;
};

// Not thread-safe. Times passed in must not go backwards.
class BatchFormer {
 public:
  // REQUIRES: options as CompleteOptions() gives them.
  explicit BatchFormer(const BatchingOptions& options);

  // Takes ownership of `request` if it is accepted; otherwise leaves it as is. One that nothing
  // is before is accepted whatever `forecast` says: how else would it learn that it was wrong?
  [[nodiscard]] Admission Add(std::unique_ptr<Request>& request, const Forecast& forecast,
                              Clock::time_point now);

  // Removes and returns what is due, earliest deadline first. A batch takes its first request
  // whatever its size, and ends at the first that does not fit its budgets, merge_examples and
  // max_batch_ids. Nothing behind that one is looked at: the cost is that of what leaves. At
  // least one request leaves when any waits. What is no longer worth running takes no room in a
  // batch. Never throws.
  Due Take(Clock::time_point now);

  // One whose deadline has passed; null where there is none.
  std::unique_ptr<Request> TakeExpired(Clock::time_point now);

  // One that waits here, out of its turn.
  std::unique_ptr<Request> Take(const Request& request);

  // The earliest of those that wait; max() where none does.
  Clock::time_point next_deadline() const;

  bool empty() const { return waiting_.empty(); }
  const QueueSize& queued() const { return queued_; }

 private:
  // Whether a request will have run by its deadline.
  bool HasTime(const Request& request, const Forecast& forecast, Clock::time_point now) const;
  // Moves the first request into `due`. False, and nothing moved, where it does not fit
  // `room`, which is what the batch has left once it has a request.
  bool TakeFirst(Clock::time_point now, QueueSize* room, Due* due);
  // No longer counts a request that has left.
  void Uncount(const Request& request);

  const BatchingOptions options_;
  WaitingLine waiting_;
  QueueSize queued_;  // Sum over waiting_.
};

}  // namespace embershard

#endif  // EMBERSHARD_BATCHING_BATCH_FORMER_H_
