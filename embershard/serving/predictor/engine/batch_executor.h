// Runs a batch and splits the outputs. It has no queue, and does not send answers.

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

// Start of a batch, and the times of its two parts. Zero if it did not get that far.
struct BatchTimes {
  Clock::time_point start;
  uint32_t lookup_us = 0;
  uint32_t dense_us = 0;
  int reruns = 0;  // Reruns of parts of a failed batch. The times above include them.
};

using IsWanted = std::function<bool(const Request&)>;

// Thread-safe. Runs one batch at a time for each Slot::number. Batches of a queue never share a
// number (worker_pool.h); those of ModelRunner::PredictMerged() may, and wait.
class BatchExecutor {
 public:
  // Limits of the reruns of one batch, in all and before the first success: enough to find one bad
  // request among 4096, or several among fewer. A model that always fails costs about two batches.
  static constexpr int kRerunsMax = 64;
  static constexpr int kRerunsInVain = 16;

  explicit BatchExecutor(Model* model);

  using Requests = std::span<const std::unique_ptr<Request>>;
  using Responses = std::vector<Result<Response>>;

  // Runs checked requests as one batch in `buffers`, and returns their responses in order. A
  // request whose outputs are not finite gets an error of its own; any other failure is that of the
  // whole batch. Always fills `times`. Never throws. REQUIRES: buffers->number < Model::slots().
  Result<Responses> RunOnce(Requests requests, Slot* buffers, BatchTimes* times);

  // Like RunOnce(), but if the model fails, runs the halves of the batch again, then the halves of
  // a failed half, and so on. This finds one bad request in about the time of two batches. At the
  // limit of reruns, all requests of a failed part fail. Requests at either end of a part that are
  // no longer `wanted` are not rerun. REQUIRES: the requests are sorted by deadline.
  Result<Responses> Run(Requests requests, const IsWanted& wanted, Slot* buffers,
                        BatchTimes* times);

 private:
  class Halving;

  Result<Responses> RunIn(Requests requests, Slot* buffers, BatchTimes* times);

  Model* const model_;
  std::vector<Mutex> running_;  // By Slot::number; locked while a batch runs.
};

}  // namespace embershard
