#include "batching/batching_queue.h"

#include <utility>

namespace embershard {

BatchingQueue::BatchingQueue(const BatchingOptions& options, RunBatch run_batch)
    : run_batch_(std::move(run_batch)), former_(options), thread_([this] { Loop(); }) {}

BatchingQueue::~BatchingQueue() { Stop(); }

Admission BatchingQueue::Submit(std::unique_ptr<Request>& request) {
  Admission admission;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return Admission::kStopped;
    admission = former_.Add(request, Clock::now());
  }
  if (admission == Admission::kAccepted) changed_.notify_one();
  return admission;
}

void BatchingQueue::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  std::call_once(joined_, [this] { thread_.join(); });
}

size_t BatchingQueue::queued_examples() const {
  const std::lock_guard lock(mutex_);
  return former_.queued_examples();
}

void BatchingQueue::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !former_.empty(); });
    if (former_.empty()) return;
    const Clock::time_point now = Clock::now();
    Batch expired = former_.TakeExpired(now);
    Batch batch = former_.TakeBatch(now);
    lock.unlock();
    run_batch_(std::move(batch), std::move(expired));
    lock.lock();
  }
}

}  // namespace embershard
