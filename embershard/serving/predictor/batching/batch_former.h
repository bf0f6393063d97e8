// Chooses which queued requests form the next batch. No clock, no lock, no thread.

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
  kTooLarge,            // Larger than the whole queue. Retrying cannot help.
  kQueueFull,           // Retry after a pause.
  kExpired,             // Its deadline has passed.
  kDeadlineInfeasible,  // It cannot run before its deadline. Retry after a pause.
  kStopped,             // Retry on another replica.
  kWithdrawn,           // The version is withdrawn, because a batch of it did not end.
};

// None of the requests has been answered.
struct Due {
  SlotLease lease;                  // The slot to run in, filled by BatchingQueue.
  Batch batch;                      // Requests to run.
  Batch expired;                    // Their deadline has passed.
  Batch abandoned;                  // Their client cancelled.
  std::unique_ptr<Request> failed;  // Memory ran out for this one; usually null.
};

struct QueueSize {
  BatchSize work;  // Counts each chunk of a split request as a request.
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
  // REQUIRES: options from CompleteOptions().
  explicit BatchFormer(const BatchingOptions& options);

  // Takes ownership of `request` if it is accepted; otherwise leaves it as it is. A request with no
  // other before it is accepted whatever `forecast` says, so that a wrong forecast gets corrected.
  // kBackground requests may fill half of the queue; one of them is accepted at any size.
  // `share`: part of the slots that the model gets while others are active, in (0, 1].
  [[nodiscard]] Admission Add(std::unique_ptr<Request>& request, const Forecast& forecast,
                              Clock::time_point now, double share = 1);

  // The reason for which Add() would refuse the request, or kAccepted. Deadlines are not checked.
  Admission RoomFor(const Request& request) const;

  // Forms the next batch and removes its requests. Never throws.
  //
  //   order           interactive requests, then kBackground ones if there is room. After
  //                   kPassedOver batches that left kBackground requests queued, the other way
  //                   round, so that they get at least an eighth of the batches. Within a priority
  //                   by deadline, also inside the batch.
  //   size            the first request is taken whatever its size. The batch ends at the first
  //                   one that does not fit merge_examples and max_batch_ids; later ones are not
  //                   examined, so the cost depends only on what leaves.
  //   split requests  chunks leave, the request stays until it is answered. Two batches in a row
  //                   do not both take chunks while other interactive requests wait.
  //   not run         expired and cancelled requests leave, too, and take no room in the batch.
  //
  // `most_examples`: a lower limit than merge_examples while another model waits for a slot.
  // REQUIRES: can_take().
  Due Take(Clock::time_point now, size_t most_examples = SIZE_MAX);

  // False if the queue is empty, or if all queued requests are split and their chunks have left.
  bool can_take() const;
  bool has_chunk() const { return large_.next() != nullptr; }
  // True if the queued requests fill a batch, so that waiting longer cannot improve it.
  bool fills_batch() const {
    return queued_.work.examples >= options_.merge_examples ||
           queued_.work.ids >= options_.max_batch_ids;
  }

  // Time until a request that Add() refused could be accepted, if no other comes. Zero if unknown.
  std::chrono::nanoseconds RetryAfter(const Request& refused, const Forecast& forecast,
                                      Clock::time_point now, double share = 1) const;

  // Removes a request whose deadline has passed; with `now` = max(), any request. Null if none
  // is left.
  std::unique_ptr<Request> TakeExpired(Clock::time_point now);

  // Removes a queued request out of order.
  std::unique_ptr<Request> Take(const Request& request);

  // max() if the queue is empty.
  Clock::time_point next_deadline() const;

  bool empty() const { return interactive_.empty() && large_.empty() && background_.empty(); }
  const QueueSize& queued() const { return queued_; }

  static constexpr int kPassedOver = 7;

 private:
  RequestQueue& QueueOf(const Request& request);
  bool HasRoom(const Request& request, const QueueSize& size) const;
  // Latest time at which the request will have run, with a margin.
  Clock::time_point EndOf(const Request& request, const Forecast& forecast, Clock::time_point now,
                          double share) const;
  // True if the next batch starts with a kBackground request, or with an interactive chunk.
  bool IsTurnOfBackground() const;
  bool IsTurnOfLarge() const;
  void CountPassedOver(const Batch& batch);
  // Moves the next request or chunk into `due`. Returns false if the queue has none, or if `due` is
  // not empty and this one does not fit `room`, the rest of its budget.
  bool TakeNext(RequestQueue* queue, Clock::time_point now, BatchSize* room, Due* due);
  void Count(const Request& request);
  void Uncount(const Request& request);

  const BatchingOptions options_;
  RequestQueue interactive_;  // Without split requests.
  RequestQueue large_;        // Interactive split requests.
  RequestQueue background_;
  QueueSize queued_;             // Total of the three queues.
  QueueSize queued_background_;  // Total of background_.
  int passed_over_ = 0;          // Batches in a row that left kBackground requests queued.
  bool after_large_ = false;     // The last batch had a chunk from large_.
};

}  // namespace embershard
