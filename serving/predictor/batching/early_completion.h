// A request that is answered before its turn, or before the model has done with it.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
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

}  // namespace embershard
