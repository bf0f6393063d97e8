// Which waiting requests form the next batch. No clock, no lock, no thread.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "batching/batch_costs.h"
#include "batching/batching_options.h"
#include "batching/forecast.h"
#include "batching/request.h"
#include "batching/request_queue.h"
#include "batching/worker_pool.h"

namespace embershard {

enum class Admission {
  kAccepted,
  kTooLarge,            // Exceeds the queue. Retrying cannot help.
  kQueueFull,           // Retry after a pause.
  kExpired,             // Its deadline has passed.
  kDeadlineInfeasible,  // Its deadline would pass before it has run. Retry after a pause.
  kStopped,             // Retry on another replica.
  kWithdrawn,           // A batch of the version did not end.
};

// What leaves the queue at one moment. Each of the requests is still to be answered.
struct Due {
  SlotLease lease;                  // Of a slot, where the batch is a queue's.
  Batch batch;                      // To run.
  Batch expired;                    // Not worth running: the deadline has passed.
  Batch abandoned;                  // Not worth running: the client cancelled.
  std::unique_ptr<Request> failed;  // Given up, because memory has run out; else null.
};

// Sums over requests.
struct QueueSize {
  BatchSize work;  // Each chunk a request; one that is not cut is one.
  uint64_t bytes = 0;
  size_t requests = 0;

  QueueSize& operator+=(const QueueSize& more) {
    work += more.work;
    bytes += more.bytes;
    requests += more.requests;
    return *this;
  }
  QueueSize& operator-=(const QueueSize& less) {
    work -= less.work;
    bytes -= less.bytes;
    requests -= less.requests;
    return *this;
  }
};

// Not thread-safe. Times passed in must not go backwards.
class BatchFormer {
 public:
  // REQUIRES: options as CompleteOptions() gives them.
  explicit BatchFormer(const BatchingOptions& options);

  // Takes ownership of `request` if it is accepted; otherwise leaves it as is. One that nothing
  // is before is accepted whatever `forecast` says: how else would it learn that it was wrong?
  // Those of priority kBackground take at most half of the queue, but for one that nothing of its
  // kind is before.
  // `share`: which part of the slots its model has beside others.
  [[nodiscard]] Admission Add(std::unique_ptr<Request>& request, const Forecast& forecast,
                              Clock::time_point now, double share = 1);

  // kAccepted where there is room for it, as Add() sees that; else why it would be refused.
  Admission RoomFor(const Request& request) const;

  // Removes and returns what is due: interactive requests, and where those leave room, kBackground
  // ones; but after kPassedOver batches in a row that left kBackground ones waiting, the other way
  // round. So kBackground ones get an eighth of the batches at least. Of one priority the earliest
  // deadline comes first; so stand the requests of a batch. A batch takes its first request
  // whatever its size, and ends at the first that does not fit its budgets, merge_examples and
  // max_batch_ids. Nothing behind that one is looked at: the cost is that of what leaves. Of a
  // request that is cut chunks leave, and never in two batches in a row while other
  // interactive ones wait; the request itself stays until it is answered. At least one request or
  // chunk leaves. What is no longer worth running takes no room in a batch. Never
  // throws.
  // `most_examples`: the budget is no larger, while another model waits for a slot.
  // REQUIRES: can_take().
  Due Take(Clock::time_point now, size_t most_examples = SIZE_MAX);

  // Whether anything may leave: not where all that waits is cut and its chunks have left.
  bool can_take() const;
  // Whether one that can is of a request that is cut, and interactive.
  bool has_chunk() const { return large_.next() != nullptr; }
  // Whether the queued requests fill a batch: waiting on merges nothing better.
  bool fills_batch() const {
    return queued_.work.examples >= options_.merge_examples ||
           queued_.work.ids >= options_.max_batch_ids;
  }

  // After how long there will be room and time for one that Add() has refused, if nothing else
  // comes. Zero where nothing is known.
  std::chrono::nanoseconds RetryAfter(const Request& refused, const Forecast& forecast,
                                      Clock::time_point now, double share = 1) const;

  // One whose deadline has passed, `now` at max() any one; null where there is none.
  std::unique_ptr<Request> TakeExpired(Clock::time_point now);

  // One that waits here, out of its turn.
  std::unique_ptr<Request> Take(const Request& request);

  // The earliest deadline in the queue; max() if it is empty.
  Clock::time_point next_deadline() const;

  bool empty() const { return interactive_.empty() && large_.empty() && background_.empty(); }
  const QueueSize& queued() const { return queued_; }

  static constexpr int kPassedOver = 7;

 private:
  RequestQueue& QueueOf(const Request& request);
  bool HasRoom(const Request& request, const QueueSize& size) const;
  // When a request will have run, at the latest.
  Clock::time_point EndOf(const Request& request, const Forecast& forecast, Clock::time_point now,
                          double share) const;
  // Whether the next batch begins with a kBackground request, or with a chunk of an interactive
  // one.
  bool IsTurnOfBackground() const;
  bool IsTurnOfLarge() const;
  // Counts how often kBackground ones were left.
  void CountPassedOver(const Batch& batch);
  // Moves the next request, or a chunk of it, into `due`. False, and nothing moved, where there is
  // none, or it does not fit `room`, the rest of the budget of a batch that has a request.
  bool TakeNext(RequestQueue* queue, Clock::time_point now, BatchSize* room, Due* due);
  // Counts the queued part of a request, or no longer.
  void Count(const Request& request);
  void Uncount(const Request& request);

  const BatchingOptions options_;
  RequestQueue interactive_;  // But for those that are cut.
  RequestQueue large_;        // The interactive ones that are cut.
  RequestQueue background_;
  QueueSize queued_;             // Sum over all.
  QueueSize queued_background_;  // Over background_.
  int passed_over_ = 0;          // Batches in a row that left kBackground ones waiting.
  bool after_large_ = false;     // The last batch had a chunk from large_.
};

}  // namespace embershard
