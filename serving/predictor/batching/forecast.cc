#include "batching/forecast.h"

#include <algorithm>
#include <cstdint>

namespace embershard {
namespace {

// How many of `requests` equal ones fill a batch which holds `room` of what they have in all.
uint64_t Fit(uint64_t requests, uint64_t in_all, uint64_t room) {
  if (in_all == 0) return requests;
  return std::clamp<uint64_t>(room * requests / in_all, 1, requests);
}

uint64_t DivideUp(uint64_t number, uint64_t by) { return (number + by - 1) / by; }

}  // namespace

void Forecast::RunBegins(const BatchSize& size, Clock::time_point now) {
  running_ = size;
  since_ = now;
}

void Forecast::RunEnds(Clock::time_point now) {
  if (runs()) costs_.Learn(running_, now - since_, now);
  running_ = {};
}

Clock::time_point Forecast::EndOf(const BatchSize& work, Clock::time_point now) const {
  const Clock::time_point of_late = now - BatchCosts::kMemory;
  Clock::time_point end = now;
  if (runs()) end = std::max(end, since_ + costs_.Predict(running_, of_late));
  const uint64_t batches =
      DivideUp(work.requests, std::min(Fit(work.requests, work.examples, options_.merge_examples),
                                       Fit(work.requests, work.ids, options_.max_batch_ids)));
  const BatchSize each = {.requests = DivideUp(work.requests, batches),
                          .examples = DivideUp(work.examples, batches),
                          .ids = DivideUp(work.ids, batches)};
  return end + costs_.Predict(each, of_late) * static_cast<int64_t>(batches);
}

}  // namespace embershard
