// How long a batch will run, learned from those that ran. No clock, no lock, no thread.

#ifndef EMBERSHARD_BATCHING_BATCH_COSTS_H_
#define EMBERSHARD_BATCHING_BATCH_COSTS_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace embershard {

// What a batch holds, as far as its time depends on it.
struct BatchSize {
  uint64_t requests = 0;
  uint64_t examples = 0;
  uint64_t ids = 0;
};

// A running estimate of the 90th percentile for each bucket of sizes, where a bucket is a power
// of two of requests, of examples and of ids. Not thread-safe; takes no memory.
//
//   a batch took longer   the estimate grows by an eighth
//   or not                it shrinks by a seventy-second
//
// The two are in balance where one batch in ten takes longer: whatever the distribution, and
// some thirty batches after it has become ten times slower.
class BatchCosts {
 public:
  // A batch of this size took so long.
  void Learn(const BatchSize& size, std::chrono::nanoseconds took);

  // The 90th percentile of such batches. Where none has run, that of batches with as many
  // examples or of those with as many ids, whichever is more; where none of those has run, of
  // the next smaller. Zero where nothing is known.
  std::chrono::nanoseconds Predict(const BatchSize& size) const;

 private:
  static constexpr size_t kRequests = 14;  // Up to 8191; beyond, the last bucket.
  static constexpr size_t kExamples = 20;
  static constexpr size_t kIds = 26;

  // Nanoseconds; 0: no such batch has run.
  std::array<std::array<std::array<float, kIds>, kExamples>, kRequests> of_size_{};
  std::array<float, kExamples> of_examples_{};
  std::array<float, kIds> of_ids_{};
};

}  // namespace embershard

#endif  // EMBERSHARD_BATCHING_BATCH_COSTS_H_
