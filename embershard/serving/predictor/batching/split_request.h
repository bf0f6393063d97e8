// Splits a request that is larger than a batch, or large enough to use idle slots, into chunks that
// run in the free slots, and joins their outputs into one answer.
//
//   whole    the request; stays queued until it is answered, exactly once
//   chunk    a request made of views over the same bytes; batches take chunks in order

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "batching/batch_costs.h"
#include "batching/request.h"
#include "package/manifest.h"

namespace embershard {

// Limits of a chunk, each at least 1.
struct ChunkBudget {
  uint32_t examples = 1;
  uint64_t ids = 1;
};

// True if `request` must be split. A single example cannot be, whatever its number of ids.
inline bool IsLarger(const Request& request, const ChunkBudget& budget) {
  return request.num_examples > 1 &&
         (request.num_examples > budget.examples || request.num_ids > budget.ids);
}

// State that a whole request and its chunks share; each chunk keeps it alive. Chunks may be
// answered on any thread; the other methods require the queue's lock.
class SplitRequest {
 public:
  // Removes the whole from the queue; null if it was answered already.
  using TakeWhole = std::function<std::unique_ptr<Request>(const SplitRequest&)>;

  // Splits `whole` and keeps its bytes alive. `schema` must outlive this object. Chunks have
  // equally many examples, unless a chunk's ids would exceed the budget. Each chunk contains the
  // ids in request scope; at least half of the budget remains for the other ids in any case.
  // REQUIRES: `whole` passed CheckRequest() and IsLarger().
  SplitRequest(const Schema* schema, const ChunkBudget& budget, const Request& whole,
               TakeWhole take_whole);

  // True if a chunk has not been taken yet.
  bool has_next() const { return taken_ < chunks_.size(); }
  const Request& next() const { return *chunks_[taken_]; }

  // Size of the chunks that no batch has taken yet. `requests` counts chunks.
  const BatchSize& left() const { return left_; }

  // Excludes the bytes of the whole.
  uint64_t held_bytes() const { return held_bytes_; }

  // Never throws. REQUIRES: has_next(); `self` points to this object.
  std::unique_ptr<Request> TakeNext(const std::shared_ptr<SplitRequest>& self);

  // Used by the queue: the whole while it is queued, otherwise null.
  Request* waiting = nullptr;

 private:
  // The views of `rest` start at the chunk's first example.
  std::unique_ptr<Request> Cut(Request* rest);
  BatchSize SizeOfNext(const Request& rest) const;
  // Answers the whole after the last chunk, or after the first failure.
  void End(uint32_t first_example, Status status, Response response);
  void Join(uint32_t first_example, Response response) REQUIRES(mutex_);
  void MakePlaces() REQUIRES(mutex_);
  void AddTiming(const Timing& timing) REQUIRES(mutex_);

  const Schema* const schema_;
  const TakeWhole take_whole_;
  const std::shared_ptr<const void> bytes_;
  const uint32_t num_examples_;
  const std::vector<size_t> outputs_wanted_;
  ChunkBudget chunk_;  // Counts only ids in example scope.
  uint64_t held_bytes_ = 0;
  uint64_t request_ids_ = 0;                      // Ids in request scope, which each chunk has.
  std::vector<std::unique_ptr<Request>> chunks_;  // Null after a chunk was taken.
  size_t taken_ = 0;
  BatchSize left_;

  Mutex mutex_;
  size_t ended_ GUARDED_BY(mutex_) = 0;     // Chunks joined so far.
  bool failed_ GUARDED_BY(mutex_) = false;  // A chunk failed: no further chunk is joined.
  Response joined_ GUARDED_BY(mutex_);
};

// Size of the part of a queued request that no batch has taken. `requests` counts chunks.
inline BatchSize SizeLeft(const Request& request) {
  if (request.split != nullptr) return request.split->left();
  return {.requests = 1, .examples = request.num_examples, .ids = request.num_ids};
}

}  // namespace embershard
