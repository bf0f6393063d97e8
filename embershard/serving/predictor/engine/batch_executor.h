// Runs a batch: merges its requests into the buffers of a lease, runs the model, splits the
// outputs. No queue, and nothing is answered here.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "batching/request.h"
#include "model/model.h"
#include "model/slot.h"

namespace embershard {

// When a batch began to run, and how long its halves took. Zero: it did not come so far.
struct BatchTimes {
  Clock::time_point start;
  uint32_t lookup_us = 0;
  uint32_t dense_us = 0;
  int reruns = 0;  // Runs of parts of it, after it had failed. Their time is in the two above.
};

// Whether a request still waits for its answer. Any thread.
using IsWanted = std::function<bool(const Request&)>;

// Thread-safe; runs one batch at a time under each Slot::number. A queue's batches never share a
// number (worker_pool.h). Those of ModelRunner::PredictMerged() may share one with them and wait.
class BatchExecutor {
 public:
  // Most reruns of parts of one batch, and most of them while none succeeds: enough to find one
  // request among 4096, and several among fewer. A model that fails for whatever it is given costs
  // no more than about two batches.
  static constexpr int kRerunsMax = 64;
  static constexpr int kRerunsInVain = 16;

  // Does not own `model`, which must outlive it.
  explicit BatchExecutor(Model* model);

  using Requests = std::span<const std::unique_ptr<Request>>;
  using Responses = std::vector<Result<Response>>;

  // The responses to checked requests, in their order, run as one batch in `buffers`, which are the
  // caller's. A request for which the model gave a NaN or an infinity has that for its status; any
  // other failure is that of the whole batch. Fills `times` in any case. Never throws.
  // REQUIRES: the buffers' number is below Model::slots().
  Result<Responses> RunOnce(Requests requests, Slot* buffers, BatchTimes* times);

  // The same, but if the model fails for a batch of several, the halves run again, then the halves
  // of those that fail again: one request that makes it fail is found in about the time of two
  // batches. What is not found when the reruns are used up fails with its part. Requests that are
  // not `wanted` any more at either end of a part do not run again.
  // REQUIRES: the requests stand by deadline.
  Result<Responses> Run(Requests requests, const IsWanted& wanted, Slot* buffers,
                        BatchTimes* times);

 private:
  class Halving;

  Result<Responses> RunIn(Requests requests, Slot* buffers, BatchTimes* times);

  Model* const model_;
  std::vector<Mutex> running_;  // By Slot::number; held while a batch runs.
};

}  // namespace embershard
