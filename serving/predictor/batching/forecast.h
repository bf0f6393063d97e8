// When what waits will have run, judged by what ran before. No clock, no lock, no thread.

#ifndef EMBERSHARD_BATCHING_FORECAST_H_
#define EMBERSHARD_BATCHING_FORECAST_H_

#include <chrono>

#include "base/clock.h"
#include "batching/batch_costs.h"
#include "batching/batching_options.h"

namespace embershard {

// Not thread-safe. Times passed in must not go backwards.
class Forecast {
 public:
  // REQUIRES: options as CompleteOptions() gives them.
  explicit Forecast(const BatchingOptions& options) : options_(options) {}

  // A batch begins to run, and has run. One at a time.
  void RunBegins(const BatchSize& size, Clock::time_point now);
  void RunEnds(Clock::time_point now);
  bool runs() const { return running_.requests > 0; }

  // How long one batch will take, however long ago such a one ran; zero where none has.
  std::chrono::nanoseconds OfBatch(const BatchSize& size) const {
    return costs_.Predict(size, Clock::time_point::min());
  }

  // When `work` will have run if it is next: behind what runs now, in as many batches as it makes
  // where all its requests are of one size. Judged by batches of late; `now` where there are none.
  // REQUIRES: at least one request.
  Clock::time_point EndOf(const BatchSize& work, Clock::time_point now) const;

 private:
  const BatchingOptions options_;
  BatchCosts costs_;
  BatchSize running_;  // All zero: nothing runs.
  Clock::time_point since_;
};

}  // namespace embershard

#endif  // EMBERSHARD_BATCHING_FORECAST_H_
