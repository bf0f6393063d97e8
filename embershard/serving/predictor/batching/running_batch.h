// The batch that the model runs, as its deadlines see it, and what is answered before the model has
// done with it or before its turn. No clock, no lock, no thread.

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

// Nobody can take the request back any more, and its handle may go. Under the queue's lock,
// but for one that has been unlinked: its chunks may still look, and are not touched again.
inline void Unlink(Request* request) {
  if (request->split != nullptr && request->split->waiting != nullptr) {
    request->split->waiting = nullptr;
  }
  if (request->cancellation != nullptr) request->cancellation->request = nullptr;
  request->cancellation = nullptr;
}

// What is still to be answered, and all that the answer needs.
struct EarlyCompletion {
  // Of one that runs. It stays with the model, without its answer.
  EarlyCompletion(Request* running, StatusReason reason)
      : why(reason),
        runs(running->runs),
        arrival(running->arrival),
        num_ids(running->num_ids),
        answer(std::move(running->answer)) {
    running->answer = nullptr;
    Unlink(running);
  }

  // Of one that waited, and is no longer in the queue.
  EarlyCompletion(std::unique_ptr<Request> waiting, StatusReason reason)
      : EarlyCompletion(waiting.get(), reason) {
    request = std::move(waiting);
  }

  StatusReason why = StatusReason::kUnstated;  // kUnstated: the deadline; kAbandoned: the client.
  bool withdrawn = false;                      // Neither: its version was withdrawn.
  bool runs = false;
  Clock::time_point arrival;
  uint64_t num_ids = 0;
  std::function<void(Status, Response)> answer;
  std::unique_ptr<Request> request;  // Null where it runs.
};

// Not thread-safe, but of a request it touches only `answer`, `cancellation` and `runs`: the model
// may read the rest meanwhile.
class RunningBatch {
 public:
  // `batch` must stay where it is until End(), by deadline. REQUIRES: none runs.
  void Begin(std::span<const std::unique_ptr<Request>> batch) {
    assert(batch_.empty());
    batch_ = batch;
    first_ = 0;
    for (const auto& request : batch) request->runs = true;
  }

  // From now on the requests are nobody else's. Those that were taken have no `answer`.
  void End() {
    for (const auto& request : batch_) Unlink(request.get());
    batch_ = {};
  }

  // The first whose deadline has passed, if it has not been taken; else null. It is to be taken.
  Request* FirstExpired(Clock::time_point now) {
    const bool has_expired = next_deadline() <= now && first_ < batch_.size();
    return has_expired ? batch_[first_].get() : nullptr;
  }

  // The earliest deadline of those that have not been taken; max() where there is none.
  Clock::time_point next_deadline() {
    while (first_ < batch_.size() && !batch_[first_]->answer) ++first_;
    return first_ < batch_.size() ? batch_[first_]->deadline : Clock::time_point::max();
  }

 private:
  std::span<const std::unique_ptr<Request>> batch_;
  size_t first_ = 0;  // All before it have been taken.
};

}  // namespace embershard
