#include "batching/running_batch.h"

#include <cassert>

#include "batching/early_completion.h"

namespace embershard {

void RunningBatch::Begin(std::span<const std::unique_ptr<Request>> batch) {
  assert(batch_.empty());
  batch_ = batch;
  first_ = 0;
  for (const auto& request : batch) request->runs = true;
}

void RunningBatch::End() {
  for (const auto& request : batch_) Unlink(request.get());
  batch_ = {};
}

Request* RunningBatch::FirstExpired(Clock::time_point now) {
  const bool has_expired = next_deadline() <= now && first_ < batch_.size();
  return has_expired ? batch_[first_].get() : nullptr;
}

Clock::time_point RunningBatch::next_deadline() {
  while (first_ < batch_.size() && !batch_[first_]->answer) ++first_;
  return first_ < batch_.size() ? batch_[first_]->deadline : Clock::time_point::max();
}

}  // namespace embershard
