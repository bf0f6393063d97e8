// Runs batches of one model: build, run, cut.

#ifndef EMBERSHARD_ENGINE_BATCH_RUNNER_H_
#define EMBERSHARD_ENGINE_BATCH_RUNNER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
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

// Thread-safe; runs one batch at a time in each of the model's slots.
class BatchRunner {
 public:
  // Does not own `model`, which must outlive it.
  explicit BatchRunner(Model* model);

  // The responses to checked requests, in their order, run as one batch, once a slot is free. A
  // request for which the model gave a NaN or an infinity has that for its status; any other
  // failure is that of the whole batch. Fills `times` in any case. Never throws.
  Result<std::vector<Result<Response>>> Run(std::span<const std::unique_ptr<Request>> requests,
                                            BatchTimes* times);

 private:
  // One batch's memory.
  struct Place {
    Slot slot;
    std::vector<std::vector<UnknownIdCount>> unknown_ids;  // By request.
  };
  class Taken;

  Result<std::vector<Result<Response>>> RunIn(Place* place,
                                              std::span<const std::unique_ptr<Request>> requests,
                                              BatchTimes* times);

  Model* const model_;
  std::vector<Place> places_;  // Each for who has taken it from free_.

  Mutex mutex_;
  CondVar freed_;
  // First those that were never used, which are taken first: where batches run
  // at the start they give each its memory. The last is the one used last.
  std::vector<Place*> free_ GUARDED_BY(mutex_);
  size_t unused_ GUARDED_BY(mutex_);  // How many of the first were never used.
};

}  // namespace embershard

#endif  // EMBERSHARD_ENGINE_BATCH_RUNNER_H_
