#include "batching/forecast.h"

#include <algorithm>
#include <cstdint>
#include <functional>

#include "base/divide_up.h"

namespace embershard {
namespace {

// How many of `requests` equal ones fill a batch which holds `room` of what they have in all.
uint64_t Fit(uint64_t requests, uint64_t in_all, uint64_t room) {
  if (in_all == 0) return requests;
  return std::clamp<uint64_t>(room * requests / in_all, 1, requests);
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

size_t Forecast::ExamplesWithin(std::chrono::nanoseconds time, const BatchSize& work) const {
  if (work.examples == 0) return SIZE_MAX;
  const uint64_t examples = std::min<uint64_t>(work.examples, options_.merge_examples);
  const std::chrono::nanoseconds took =
      OfBatch({.requests = work.requests * examples / work.examples,
               .examples = examples,
               .ids = work.ids * examples / work.examples});
  if (took <= time) return SIZE_MAX;
  const auto most =
      examples * static_cast<uint64_t>(time.count()) / static_cast<uint64_t>(took.count());
  return std::max<uint64_t>(most, 1);
}

Clock::time_point Forecast::FirstEnd(Clock::time_point now) const {
  Clock::time_point first = Clock::time_point::max();
  for (const Running& each : running_) {
    if (IsRun(each)) first = std::min(first, EndOfRun(each, now - BatchCosts::kMemory));
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
  // In turn to the slot that is free first, which then is free last.
  const Clock::time_point last = *std::ranges::max_element(free_);
  std::ranges::make_heap(free_, std::greater());
  Clock::time_point end = now;
  bool in_rounds = false;
  for (uint64_t left = batches.count; left > 0; --left) {
    if (!in_rounds && free_.front() + batches.each >= last) {
      in_rounds = true;  // From here on each slot gets one before any gets two.
      const uint64_t rounds = (left - 1) / free_.size();
      for (Clock::time_point& free : free_) free += static_cast<int64_t>(rounds) * batches.each;
      left -= rounds * free_.size();
    }
    std::ranges::pop_heap(free_, std::greater());
    end = free_.back() += batches.each;
    std::ranges::push_heap(free_, std::greater());
  }
  return end;
}

Forecast::Batches Forecast::BatchesOf(const BatchSize& work, Clock::time_point of_late) const {
  const uint64_t count =
      DivideUp(work.requests, std::min(Fit(work.requests, work.examples, options_.merge_examples),
                                       Fit(work.requests, work.ids, options_.max_batch_ids)));
  const BatchSize each = {.requests = DivideUp(work.requests, count),
                          .examples = DivideUp(work.examples, count),
                          .ids = DivideUp(work.ids, count)};
  return {.count = count, .each = costs_.Predict(each, of_late)};
}

void Forecast::FindFree(Clock::time_point now, Clock::time_point of_late) const {
  for (size_t slot = 0; slot < running_.size(); ++slot) {
    free_[slot] = IsRun(running_[slot]) ? std::max(now, EndOfRun(running_[slot], of_late)) : now;
  }
}

}  // namespace embershard
