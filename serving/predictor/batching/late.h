// A request that is answered before its turn, or before the model has done with it.

#ifndef EMBERSHARD_BATCHING_LATE_H_
#define EMBERSHARD_BATCHING_LATE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "batching/request.h"
#include "batching/request_pieces.h"

namespace embershard {

// Nobody can take the request back any more, and its ticket may go. Under the queue's lock, but for
// one that has been unlinked: its pieces may still look, and are not touched again.
inline void Unlink(Request* request) {
  if (request->pieces != nullptr && request->pieces->waiting != nullptr) {
    request->pieces->waiting = nullptr;
  }
  if (request->ticket != nullptr) request->ticket->request = nullptr;
  request->ticket = nullptr;
}

// What is still to be answered, and all that the answer needs.
struct Late {
  // Of one that runs. It stays with the model, without its answer.
  Late(Request* running, StatusReason reason)
      : why(reason),
        runs(running->runs),
        arrival(running->arrival),
        num_ids(running->num_ids),
        answer(std::move(running->answer)) {
    running->answer = nullptr;
    Unlink(running);
  }

  // Of one that waited, and has left the queue.
  Late(std::unique_ptr<Request> waiting, StatusReason reason) : Late(waiting.get(), reason) {
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

#endif  // EMBERSHARD_BATCHING_LATE_H_
