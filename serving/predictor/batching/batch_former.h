// Which waiting requests form the next batch. No clock, no lock, no thread.

#ifndef EMBERSHARD_BATCHING_BATCH_FORMER_H_
#define EMBERSHARD_BATCHING_BATCH_FORMER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "batching/request.h"

namespace embershard {

// Sizes count examples (rows to score) and ids (rows to look up).
struct BatchingOptions {
  // Largest batch. A request larger than this is refused.
  size_t max_batch_examples = 4096;
  uint64_t max_batch_ids = 1 << 20;

  // Most examples and ids waiting at once. Beyond this, requests are refused at
  // once rather than served late.
  size_t max_queued_examples = 32768;
  uint64_t max_queued_ids = 1 << 23;
};

enum class Admission {
  kAccepted,
  kTooLarge,   // Exceeds a batch. Retrying cannot help.
  kQueueFull,  // Retry after a pause.
  kExpired,    // Its deadline has passed.
  kStopped,    // Retry on another replica.
};

using Batch = std::vector<std::unique_ptr<Request>>;

// Not thread-safe. Times passed in must not go backwards.
class BatchFormer {
 public:
  // REQUIRES: 0 < max_batch_* <= max_queued_*.
  explicit BatchFormer(const BatchingOptions& options);

  // Takes ownership of `request` if it is accepted; otherwise leaves it as is.
  [[nodiscard]] Admission Add(std::unique_ptr<Request>& request, Clock::time_point now);

  // Removes and returns what is due to run, oldest first, within the budgets. At
  // least one request when any is waiting that has not expired; never an expired one.
  Batch TakeBatch(Clock::time_point now);

  // Removes and returns the requests that are not worth running any more: whose
  // deadline has passed, or whose client has left.
  Batch TakeExpired(Clock::time_point now);

  bool empty() const { return waiting_.empty(); }
  size_t queued_examples() const { return queued_examples_; }
  uint64_t queued_ids() const { return queued_ids_; }

 private:
  // Removes and returns the requests for which `predicate` is true, asked in order.
  template <class Predicate>
  Batch TakeIf(Predicate predicate);

  const BatchingOptions options_;
  std::deque<std::unique_ptr<Request>> waiting_;  // Oldest first.
  size_t queued_examples_ = 0;                    // Sum over waiting_.
  uint64_t queued_ids_ = 0;                       // Sum over waiting_.
};

}  // namespace embershard

#endif  // EMBERSHARD_BATCHING_BATCH_FORMER_H_
