// Predicts when queued requests will have run, from earlier batches. No clock, no lock, no thread.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "batching/batch_costs.h"
#include "batching/batching_options.h"

namespace embershard {

// Not thread-safe. Times passed in must not go backwards.
class Forecast {
 public:
  // REQUIRES: options from CompleteOptions().
  explicit Forecast(const BatchingOptions& options)
      : options_(options), running_(options.slots), free_(options.slots) {}

  // A batch starts in a slot, or has ended there. Each slot runs one batch at a time.
  void RunBegins(size_t slot, const BatchSize& size, Clock::time_point now);
  void RunEnds(size_t slot, Clock::time_point now);
  bool is_full() const;

  // Predicted time of one batch, from batches of any age; zero if no such batch ever ran.
  std::chrono::nanoseconds OfBatch(const BatchSize& size) const {
    return costs_.Predict(size, Clock::time_point::min());
  }

  // Number of equal batches into which to divide `work`. Starts with the fewest that have at most
  // `most_examples` each, and doubles while a batch takes longer than `time` and two halves take at
  // most 1/8 longer than the whole. If halves cost more than that, the fixed cost of a batch (such
  // as reading the weights) dominates. Halves of a size that did not run for BatchCosts::kMemory
  // are tried.
  size_t PartsWithin(std::chrono::nanoseconds time, const BatchSize& work, size_t most_examples,
                     Clock::time_point now) const;

  // Time at which `work` will have run if it starts after the batches that run now. Assumes
  // requests of equal size, each batch in the slot that is free first. Uses recent batches only;
  // `now` if there are none.
  // REQUIRES: at least one request.
  Clock::time_point EndOf(const BatchSize& work, Clock::time_point now) const;

  // Predicted end of the first running batch, which may be in the past; max() if none runs. Uses
  // recent batches only: a batch of a size not seen recently counts as ended when it began.
  Clock::time_point FirstEnd(Clock::time_point now) const;

 private:
  struct Running {
    BatchSize size;  // All zero if the slot is free.
    Clock::time_point since;
  };
  static bool IsRun(const Running& running) { return running.size.requests > 0; }
  struct Batches {
    uint64_t count = 0;
    std::chrono::nanoseconds duration{0};
  };

  Batches BatchesOf(const BatchSize& work, Clock::time_point of_late) const;
  // Predicted end of a running batch, which may be in the past.
  Clock::time_point EndOfRun(const Running& running, Clock::time_point of_late) const;
  void FindFree(Clock::time_point now, Clock::time_point of_late) const;

  const BatchingOptions options_;
  BatchCosts costs_;
  std::vector<Running> running_;  // By slot.
  mutable std::vector<Clock::time_point>
      free_;  // When each slot is free; scratch space of EndOf().
};

}  // namespace embershard
