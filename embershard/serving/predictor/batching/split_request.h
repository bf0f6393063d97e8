// A request larger than a batch, or than a slot's share where slots stand idle: cut into chunks
// that run in as many slots as are free, their outputs joined into one answer.
//
//   whole    waits in the queue until it is answered, once, whatever has become of its chunks
//   chunk    a request of its own, made of views over the same bytes; batches take them from the
//            whole, in order

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

// Most that a chunk may hold, at least 1 each.
struct ChunkBudget {
  uint32_t examples = 1;
  uint64_t ids = 1;
};

// Whether `request` has to be cut. One example cannot be, however many ids it has.
inline bool IsLarger(const Request& request, const ChunkBudget& budget) {
  return request.num_examples > 1 &&
         (request.num_examples > budget.examples || request.num_ids > budget.ids);
}

// What is the whole's and what its chunks share. A chunk keeps it alive. Chunks may be answered on
// any thread; all the rest is the queue's, under its lock.
class SplitRequest {
 public:
  // Gives up the whole, which is to be answered; null where it has been.
  using TakeWhole = std::function<std::unique_ptr<Request>(const SplitRequest&)>;

  // Cuts. Keeps the bytes of `whole`. `schema` must outlive this. Chunks have equally many
  // examples, as far as their ids fit the budget. The ids of the request scope are in each chunk:
  // where they take more than half of the budget, half is left for the others all the same.
  // REQUIRES: `whole` passed CheckRequest(), and IsLarger().
  SplitRequest(const Schema* schema, const ChunkBudget& budget, const Request& whole,
               TakeWhole take_whole);

  // Whether a chunk has not been taken.
  bool has_next() const { return taken_ < chunks_.size(); }
  const Request& next() const { return *chunks_[taken_]; }

  // What no batch has taken yet. `requests`: how many chunks.
  const BatchSize& left() const { return left_; }

  // What the chunks take in memory, the bytes of the whole not counted.
  uint64_t held_bytes() const { return held_bytes_; }

  // REQUIRES: has_next(), and `self` is this. Never throws.
  std::unique_ptr<Request> TakeNext(const std::shared_ptr<SplitRequest>& self);

  // The queue's own: the whole while it waits there, else null.
  Request* waiting = nullptr;

 private:
  // `rest`: what of the whole is not cut yet; its views begin at its first example.
  std::unique_ptr<Request> Cut(Request* rest);
  // How many examples the next chunk has, and their ids.
  BatchSize SizeOfNext(const Request& rest) const;
  // A chunk has run. Answers the whole after the last, or the first that failed.
  void End(uint32_t first_example, Status status, Response response);
  void Join(uint32_t first_example, Response response) REQUIRES(mutex_);
  // A place for each output that is asked for, with room for all examples.
  void MakePlaces() REQUIRES(mutex_);
  void AddTiming(const Timing& timing) REQUIRES(mutex_);

  const Schema* const schema_;
  const TakeWhole take_whole_;
  const std::shared_ptr<const void> bytes_;
  const uint32_t num_examples_;
  const std::vector<size_t> outputs_wanted_;
  ChunkBudget chunk_;  // Its ids are those in example scope.
  uint64_t held_bytes_ = 0;
  uint64_t request_ids_ = 0;                      // In request scope: each chunk has them.
  std::vector<std::unique_ptr<Request>> chunks_;  // Null: taken.
  size_t taken_ = 0;
  BatchSize left_;

  Mutex mutex_;
  size_t ended_ GUARDED_BY(mutex_) = 0;     // Chunks that are joined.
  bool failed_ GUARDED_BY(mutex_) = false;  // No further chunk is joined.
  Response joined_ GUARDED_BY(mutex_);
};

// What no batch has taken of a request that waits. `requests`: as many as it has chunks.
inline BatchSize SizeLeft(const Request& request) {
  if (request.split != nullptr) return request.split->left();
  return {.requests = 1, .examples = request.num_examples, .ids = request.num_ids};
}

}  // namespace embershard
