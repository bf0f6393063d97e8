#include "lookup/lookup_device.h"

#include <algorithm>
#include <exception>
#include <span>
#include <utility>

#include "base/clock.h"

namespace embershard {

LookupDevice::LookupDevice(std::string name, uint64_t table_bytes, size_t threads, size_t callers,
                           const BagSumsKernel& kernel)
    : name_(std::move(name)),
      table_bytes_(table_bytes),
      sums_(threads, PieceSums(kernel)),
      statuses_(threads),
      elapsed_(threads) {
  for (size_t i = callers; i < threads; ++i) {
    threads_.push_back(std::make_unique<TaskThread>([this, i] { Work(i); }));
  }
}

void LookupDevice::Begin(LookupPhase phase, const LookupBatch& batch, const DeviceShare& share) {
  phase_ = phase;
  batch_ = &batch;
  share_ = &share;
  taken_.store(0, std::memory_order_relaxed);
  for (PieceSums& sums : sums_) sums.Reserve(*batch.cut);
}

void LookupDevice::Wake(size_t callers) {
  const size_t tasks = Tasks();
  while (woken_ < threads_.size() && callers + woken_ < tasks) threads_[woken_++]->Start();
}

void LookupDevice::Work(size_t thread) {
  const Clock::time_point start = Clock::now();
  try {
    const size_t tasks = Tasks();
    Status status;
    // Odd threads start from the back. A single thread changes direction with each batch, because
    // the data that it used last is still in the core's cache.
    const bool from_back = (sums_.size() == 1 ? batches_.load() : thread) % 2 == 1;
    for (;;) {
      const uint64_t taken =
          taken_.fetch_add(from_back ? kOneFromBack : 1, std::memory_order_relaxed);
      const uint64_t front = taken % kOneFromBack;
      const uint64_t back = taken / kOneFromBack;
      if (!status.ok() || front + back >= tasks) break;
      status = RunTask(from_back ? tasks - 1 - back : front, thread, from_back);
    }
    statuses_[thread] = std::move(status);
  } catch (const std::exception& error) {
    statuses_[thread] = Internal("lookup on device '" + name_ + "': " + error.what());
  }
  elapsed_[thread] = Clock::now() - start;
}

Status LookupDevice::End() {
  for (size_t i = 0; i < woken_; ++i) threads_[i]->Wait();
  woken_ = 0;
  Count();
  Status first;
  for (Status& status : statuses_) {
    if (first.ok()) first = std::move(status);
    status = {};
  }
  return first;
}

DeviceLoad LookupDevice::load() const {
  return {.name = name_,
          .table_bytes = table_bytes_,
          .lookup_ns = lookup_ns_,
          .batches = batches_,
          .rows = rows_};
}

size_t LookupDevice::Tasks() const {
  return phase_ == LookupPhase::kSum ? share_->tasks.size() : share_->adds.size();
}

Status LookupDevice::RunTask(size_t task, size_t thread, bool from_back) {
  if (phase_ == LookupPhase::kAdd) {
    PieceSums::Add(share_->adds[task], *batch_);
    return {};
  }
  const auto [begin, end] = share_->tasks[task];
  return sums_[thread].Sum(std::span(share_->pieces).subspan(begin, end - begin), *batch_,
                           from_back);
}

// A phase takes as long as the slowest thread.
void LookupDevice::Count() {
  const std::chrono::nanoseconds longest = *std::ranges::max_element(elapsed_);
  std::ranges::fill(elapsed_, std::chrono::nanoseconds(0));
  if (Tasks() == 0) return;
  lookup_ns_.fetch_add(static_cast<uint64_t>(longest.count()), std::memory_order_relaxed);
  if (phase_ == LookupPhase::kAdd) return;
  uint64_t rows = 0;
  for (const PieceSums& sums : sums_) rows += sums.rows();
  batches_.fetch_add(1, std::memory_order_relaxed);
  rows_.store(rows, std::memory_order_relaxed);
}

}  // namespace embershard
