#include "batching/forecast.h"

#include <algorithm>
#include <cstdint>
#include <functional>

#include "base/divide_up.h"

namespace embershard {
namespace {

// Most that an example may cost in a half batch, relative to its cost in the whole.
constexpr float kMostPerExample = 9.0F / 8;

// Equal requests that fit a batch of `room` units; `requests` of them have `in_all` units.
uint64_t Fit(uint64_t requests, uint64_t in_all, uint64_t room) {
  if (in_all == 0) return requests;
  return std::clamp<uint64_t>(room * requests / in_all, 1, requests);
}

BatchSize PartOf(const BatchSize& work, uint64_t parts) {
  return {.requests = DivideUp(work.requests, parts),
          .examples = DivideUp(work.examples, parts),
          .ids = DivideUp(work.ids, parts)};
}

}  // namespace

void Forecast::RunBegins(size_t slot, const BatchSize& size, Clock::time_point now) {
  running_[slot] = {.size = size, .since = now};
}

void Forecast::RunEnds(size_t slot, Clock::time_point now) {
  const Running& ran = running_[slot];
  if (IsRun(ran)) costs_.Learn(ran.size, now - ran.since, now);
  running_[slot] = {};
}

bool Forecast::is_full() const { return std::ranges::all_of(running_, IsRun); }

size_t Forecast::PartsWithin(std::chrono::nanoseconds time, const BatchSize& work,
                             size_t most_examples, Clock::time_point now) const {
  size_t parts = std::max<size_t>(DivideUp(work.examples, most_examples), 1);
  auto took = static_cast<double>(OfBatch(PartOf(work, parts)).count());
  float per_example = costs_.PerExample(work.examples / parts);
  while (took > static_cast<double>(time.count()) && 2 * parts <= work.examples) {
    const float half = costs_.PerExample(work.examples / (2 * parts), now - BatchCosts::kMemory);
    if (half > per_example * kMostPerExample) break;
    parts *= 2;
    if (half == 0) break;
    took *= half / per_example / 2;
    per_example = half;
  }
  return parts;
}

Clock::time_point Forecast::FirstEnd(Clock::time_point now) const {
  Clock::time_point first = Clock::time_point::max();
  for (const Running& batch : running_) {
    if (IsRun(batch)) first = std::min(first, EndOfRun(batch, now - BatchCosts::kMemory));
  }
  return first;
}

Clock::time_point Forecast::EndOfRun(const Running& running, Clock::time_point of_late) const {
  return running.since + costs_.Predict(running.size, of_late);
}

Clock::time_point Forecast::EndOf(const BatchSize& work, Clock::time_point now) const {
  const Clock::time_point of_late = now - BatchCosts::kMemory;
  const Batches batches = BatchesOf(work, of_late);
  FindFree(now, of_late);
  // Give each batch to the slot that is free first.
  const Clock::time_point last = *std::ranges::max_element(free_);
  std::ranges::make_heap(free_, std::greater());
  Clock::time_point end = now;
  bool in_rounds = false;
  for (uint64_t left = batches.count; left > 0; --left) {
    if (!in_rounds && free_.front() + batches.duration >= last) {
      in_rounds = true;  // From here on the slots take turns.
      const uint64_t rounds = (left - 1) / free_.size();
      for (Clock::time_point& free : free_) free += static_cast<int64_t>(rounds) * batches.duration;
      left -= rounds * free_.size();
    }
    std::ranges::pop_heap(free_, std::greater());
    end = free_.back() += batches.duration;
    std::ranges::push_heap(free_, std::greater());
  }
  return end;
}

Forecast::Batches Forecast::BatchesOf(const BatchSize& work, Clock::time_point of_late) const {
  const uint64_t count =
      DivideUp(work.requests, std::min(Fit(work.requests, work.examples, options_.merge_examples),
                                       Fit(work.requests, work.ids, options_.max_batch_ids)));
  return {.count = count, .duration = costs_.Predict(PartOf(work, count), of_late)};
}

void Forecast::FindFree(Clock::time_point now, Clock::time_point of_late) const {
  for (size_t slot = 0; slot < running_.size(); ++slot) {
    free_[slot] = IsRun(running_[slot]) ? std::max(now, EndOfRun(running_[slot], of_late)) : now;
  }
}

}  // namespace embershard
