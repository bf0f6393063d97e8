// Runs batches of one model: build, run, cut.

#ifndef EMBERSHARD_ENGINE_BATCH_RUNNER_H_
#define EMBERSHARD_ENGINE_BATCH_RUNNER_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "batching/builder.h"
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

// Thread-safe; runs one batch at a time.
class BatchRunner {
 public:
  // Does not own `model`, which must outlive it.
  explicit BatchRunner(Model* model) : model_(model) {}

  // The responses to checked requests, in their order, run as one batch. A request for which
  // the model gave a NaN or an infinity has that for its status; any other failure is that of
  // the whole batch. Fills `times` in any case. Never throws.
  Result<std::vector<Result<Response>>> Run(std::span<const std::unique_ptr<Request>> requests,
                                            BatchTimes* times);

 private:
  Result<std::vector<Result<Response>>> RunUnguarded(
      std::span<const std::unique_ptr<Request>> requests, BatchTimes* times);

  Model* const model_;

  std::mutex mutex_;                                      // Held while a batch runs.
  Slot slot_;                                             // Guarded by mutex_.
  std::vector<std::vector<UnknownIdCount>> unknown_ids_;  // Guarded by mutex_.
};

}  // namespace embershard

#endif  // EMBERSHARD_ENGINE_BATCH_RUNNER_H_
