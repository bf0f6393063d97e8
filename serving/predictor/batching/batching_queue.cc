#include "batching/batching_queue.h"

#include <utility>

namespace embershard {

BatchingQueue::BatchingQueue(const BatchingOptions& options, RunBatch run_batch, Now now)
    : run_batch_(std::move(run_batch)),
      now_(std::move(now)),
      former_(options),
      thread_([this] { Loop(); }) {}

BatchingQueue::~BatchingQueue() { Stop(); }

Admission BatchingQueue::Submit(std::unique_ptr<Request>& request) {
  Admission admission;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return Admission::kStopped;
    admission = former_.Add(request, now_());
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

QueueSize BatchingQueue::queued() const {
  const std::lock_guard lock(mutex_);
  return former_.queued();
}

void BatchingQueue::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !former_.empty(); });
    if (former_.empty()) return;
    Due due = former_.Take(now_());
    lock.unlock();
    run_batch_(std::move(due));
    lock.lock();
  }
}

}  // namespace embershard
