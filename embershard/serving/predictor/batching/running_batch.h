// Deadlines of a running batch, and requests that are answered before they have run to their end.
// No clock, no lock, no thread.

#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "batching/request.h"
#include "batching/split_request.h"

namespace embershard {

// Makes the request impossible to cancel, so that its handle may be destroyed. Requires the queue's
// lock, except for a request that is unlinked already.
inline void Unlink(Request* request) {
  if (request->split != nullptr && request->split->waiting != nullptr) {
    request->split->waiting = nullptr;
  }
  if (request->cancellation != nullptr) request->cancellation->request = nullptr;
  request->cancellation = nullptr;
}

struct EarlyCompletion {
  // For a running request, which stays with the model but loses its `answer`.
  EarlyCompletion(Request* running, StatusReason reason)
      : why(reason),
        runs(running->runs),
        arrival(running->arrival),
        num_ids(running->num_ids),
        answer(std::move(running->answer)) {
    running->answer = nullptr;
    Unlink(running);
  }

  // For a request that was removed from the queue.
  EarlyCompletion(std::unique_ptr<Request> waiting, StatusReason reason)
      : EarlyCompletion(waiting.get(), reason) {
    request = std::move(waiting);
  }

  StatusReason why = StatusReason::kUnstated;  // kUnstated: deadline; kAbandoned: client cancelled.
  bool withdrawn = false;                      // True if its version was withdrawn instead.
  bool runs = false;
  Clock::time_point arrival;
  uint64_t num_ids = 0;
  std::function<void(Status, Response)> answer;
  std::unique_ptr<Request> request;  // Null if it runs.
};

// Not thread-safe. It changes only `answer`, `cancellation` and `runs` of a request, so the model
// may read the other fields meanwhile.
class RunningBatch {
 public:
  // Starts a batch, sorted by deadline. REQUIRES: the span is valid until End(), and no batch runs.
  void Begin(std::span<const std::unique_ptr<Request>> batch) {
    assert(batch_.empty());
    batch_ = batch;
    first_ = 0;
    for (const auto& request : batch) request->runs = true;
  }

  // Ends the batch: its requests belong to the caller alone. Those answered early have no `answer`.
  void End() {
    for (const auto& request : batch_) Unlink(request.get());
    batch_ = {};
  }

  // A request without an answer whose deadline has passed; the caller must answer it. Null: none.
  Request* FirstExpired(Clock::time_point now) {
    const bool has_expired = next_deadline() <= now && first_ < batch_.size();
    return has_expired ? batch_[first_].get() : nullptr;
  }

  // max() if there are no unanswered requests.
  Clock::time_point next_deadline() {
    while (first_ < batch_.size() && !batch_[first_]->answer) ++first_;
    return first_ < batch_.size() ? batch_[first_]->deadline : Clock::time_point::max();
  }

 private:
  std::span<const std::unique_ptr<Request>> batch_;
  size_t first_ = 0;  // All requests before this one were answered.
};

}  // namespace embershard
