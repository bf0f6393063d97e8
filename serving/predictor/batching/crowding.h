// Whether threads that run batches wait for processors. No clock, no lock, no thread.

#ifndef EMBERSHARD_BATCHING_CROWDING_H_
#define EMBERSHARD_BATCHING_CROWDING_H_

#include <algorithm>
#include <chrono>

#include "base/thread_usage.h"

namespace embershard {

// A thread that could run and does not waits for a processor: all of them are taken, and a further
// batch that ran would only take them from the others. Not thread-safe.
class Crowding {
 public:
  // One thread ran a batch in between. One that slept meanwhile says nothing: it may have waited
  // for another thread, or for a disk.
  void Learn(const ThreadUsage& before, const ThreadUsage& after) {
    if (after.sleeps != before.sleeps) return;
    const std::chrono::nanoseconds took = after.now - before.now;
    took_ += took - took_ / kBatches;
    ran_ += std::min(after.processor - before.processor, took) - ran_ / kBatches;
  }

  // Whether of the last batches' time an eighth or more was waiting.
  bool is_crowded() const { return took_ - ran_ >= kLeast && took_ - ran_ >= took_ / 8; }

 private:
  // So many batches count, the last ones most.
  static constexpr int kBatches = 16;
  // Waiting of less is what a processor is interrupted for.
  static constexpr std::chrono::microseconds kLeast{200};

  std::chrono::nanoseconds took_{0};  // Sums in which a batch counts less with each that follows.
  std::chrono::nanoseconds ran_{0};   // Of that, on a processor.
};

}  // namespace embershard

#endif  // EMBERSHARD_BATCHING_CROWDING_H_
