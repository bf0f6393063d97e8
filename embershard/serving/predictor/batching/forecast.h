// When queued requests will have run, judged by what ran before. No clock, no lock, no thread.

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
  // REQUIRES: options as CompleteOptions() gives them.
  explicit Forecast(const BatchingOptions& options)
      : options_(options), running_(options.slots), free_(options.slots) {}

  // A batch begins to run in a slot, and has run. One at a time in each.
  void RunBegins(size_t slot, const BatchSize& size, Clock::time_point now);
  void RunEnds(size_t slot, Clock::time_point now);
  // Whether one runs in every slot.
  bool is_full() const;

  // How long one batch will take, however long ago such a one ran; zero where none has.
  std::chrono::nanoseconds OfBatch(const BatchSize& size) const {
    return costs_.Predict(size, Clock::time_point::min());
  }

  // Into how many equal batches to divide `work`: as few as have at most `most_examples` each, and
  // twice as many while one takes longer than `time` and halves of it take together at most an
  // eighth longer than it: otherwise they would mostly repeat what a batch costs whatever it holds,
  // such as reading the weights. Halves of a size that has not run for BatchCosts::kMemory are
  // tried.
  size_t PartsWithin(std::chrono::nanoseconds time, const BatchSize& work, size_t most_examples,
                     Clock::time_point now) const;

  // When `work` will have run if it is next: behind what runs now, in as many batches as it makes
  // where all its requests are of one size, each in the slot that is free first. Judged by batches
  // of late; `now` where there are none.
  // REQUIRES: at least one request.
  Clock::time_point EndOf(const BatchSize& work, Clock::time_point now) const;

  // When the first of those that run will have, or should have; max() where none runs. Judged by
  // batches of late: one of a size that was not seen should have as soon as it began.
  Clock::time_point FirstEnd(Clock::time_point now) const;

 private:
  struct Running {
    BatchSize size;  // All zero: nothing runs.
    Clock::time_point since;
  };
  static bool IsRun(const Running& running) { return running.size.requests > 0; }
  struct Batches {
    uint64_t count = 0;
    std::chrono::nanoseconds each{0};
  };

  // How many batches `work` makes, and how long they take.
  Batches BatchesOf(const BatchSize& work, Clock::time_point of_late) const;
  // When a batch that runs will have, or should have.
  Clock::time_point EndOfRun(const Running& running, Clock::time_point of_late) const;
  // Fills free_: when each slot is free.
  void FindFree(Clock::time_point now, Clock::time_point of_late) const;

  const BatchingOptions options_;
  BatchCosts costs_;
  std::vector<Running> running_;                 // By slot.
  mutable std::vector<Clock::time_point> free_;  // EndOf()'s own, kept for its memory.
};

}  // namespace embershard
