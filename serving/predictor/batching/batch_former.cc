#include "batching/batch_former.h"

#include <cassert>
#include <utility>

namespace embershard {

BatchFormer::BatchFormer(const BatchingOptions& options) : options_(options) {
  assert(options.max_batch_examples > 0 &&
         options.max_batch_examples <= options.max_queued_examples);
  assert(options.max_batch_ids > 0 && options.max_batch_ids <= options.max_queued_ids);
}

Admission BatchFormer::Add(std::unique_ptr<Request>& request, Clock::time_point now) {
  if (request->num_examples > options_.max_batch_examples ||
      request->num_ids > options_.max_batch_ids) {
    return Admission::kTooLarge;
  }
  if (request->deadline <= now) return Admission::kExpired;
  if (request->num_examples > options_.max_queued_examples - queued_examples_ ||
      request->num_ids > options_.max_queued_ids - queued_ids_) {
    return Admission::kQueueFull;
  }
  const size_t examples = request->num_examples;
  const uint64_t ids = request->num_ids;
  waiting_.push_back(std::move(request));
  queued_examples_ += examples;
  queued_ids_ += ids;
  return Admission::kAccepted;
}

Batch BatchFormer::TakeBatch(Clock::time_point now) {
  size_t examples = 0;
  uint64_t ids = 0;
  bool full = false;
  return TakeIf([&](const Request& request) {
    if (full || request.deadline <= now) return false;
    // The first that does not fit ends the batch: none is overtaken for ever.
    full = examples + request.num_examples > options_.max_batch_examples ||
           ids + request.num_ids > options_.max_batch_ids;
    if (full) return false;
    examples += request.num_examples;
    ids += request.num_ids;
    return true;
  });
}

Batch BatchFormer::TakeExpired(Clock::time_point now) {
  return TakeIf([now](const Request& request) {
    return request.deadline <= now || (request.abandoned && request.abandoned());
  });
}

template <class Predicate>
Batch BatchFormer::TakeIf(Predicate predicate) {
  Batch taken;
  auto left = waiting_.begin();
  for (auto& request : waiting_) {
    if (predicate(*request)) {
      queued_examples_ -= request->num_examples;
      queued_ids_ -= request->num_ids;
      taken.push_back(std::move(request));
    } else {
      *left++ = std::move(request);
    }
  }
  waiting_.erase(left, waiting_.end());
  return taken;
}

}  // namespace embershard
