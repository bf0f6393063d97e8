// The batch that the model runs, as its deadlines see it. No clock, no lock, no thread.

#pragma once

#include <cassert>
#include <cstddef>
#include <memory>
#include <span>

#include "base/clock.h"
#include "batching/early_completion.h"
#include "batching/request.h"

namespace embershard {

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
