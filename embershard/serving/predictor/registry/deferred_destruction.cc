#include "registry/deferred_destruction.h"

#include <atomic>
#include <exception>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"

namespace embershard {

struct DeferredDestruction::Pending {
  std::unique_ptr<Engine> engine;
  std::shared_ptr<const void> claim;
};

struct DeferredDestruction::Queue {
  void Add(Pending last) {
    const MutexLock lock(mutex);
    pending.push_back(std::move(last));
    changed.NotifyAll();  // With the lock held, because this may be destroyed once it is released.
  }

  Mutex mutex;
  CondVar changed;                                 // Signalled when the fields below change.
  std::vector<Pending> pending GUARDED_BY(mutex);  // Reserved for all owned engines.
  size_t owned GUARDED_BY(mutex) = 0;              // Engines that are not destroyed yet.
  size_t waiting GUARDED_BY(mutex) = 0;            // Threads in WaitForEnds().
  bool closed GUARDED_BY(mutex) = false;
  std::atomic<uint64_t> answered = 0;
};

DeferredDestruction::DeferredDestruction(Background* background)
    : queue_(std::make_shared<Queue>()),
      thread_([queue = queue_, background] { Run(queue, background); }) {}

DeferredDestruction::~DeferredDestruction() {
  {
    const MutexLock lock(queue_->mutex);
    queue_->closed = true;
  }
  queue_->changed.NotifyAll();
  thread_.join();
}

std::shared_ptr<Engine> DeferredDestruction::Own(std::unique_ptr<Engine> engine,
                                                 std::shared_ptr<const void> claim) {
  {
    const MutexLock lock(queue_->mutex);
    queue_->pending.reserve(++queue_->owned);  // Releasing an engine must not allocate.
  }
  return {engine.release(), [queue = queue_, claim = std::move(claim)](Engine* last) mutable {
            queue->Add({.engine = std::unique_ptr<Engine>(last), .claim = std::move(claim)});
          }};
}

bool DeferredDestruction::WaitForEnds(size_t most, Clock::time_point deadline) {
  const MutexLock lock(queue_->mutex);
  ++queue_->waiting;
  while (queue_->owned > most && queue_->changed.WaitUntil(queue_->mutex, deadline)) continue;
  --queue_->waiting;
  return queue_->owned <= most;
}

uint64_t DeferredDestruction::answered() const { return queue_->answered; }

void DeferredDestruction::EndOne(Queue* queue, Background* background, Pending pending) {
  pending.engine->Stop();
  queue->answered += pending.engine->telemetry().Read().Count(Outcome::kOk);
  MutexLock lock(queue->mutex);
  const bool hurry = queue->closed || queue->waiting > 0;
  lock.Unlock();
  // Free here what serving threads have allocated, because that locks their malloc arenas.
  std::unique_ptr<Model> model = Engine::End(std::move(pending.engine));
  (void)RunIn(hurry ? nullptr : background, [&model] {
    model.reset();
    return Status();
  });
  model.reset();  // In case the background had no thread for it.
  pending.claim.reset();
  lock.Lock();
  --queue->owned;
  queue->changed.NotifyAll();  // With the lock held: `background` may be destroyed afterwards.
}

void DeferredDestruction::Run(const std::shared_ptr<Queue>& queue, Background* background) {
  MutexLock lock(queue->mutex);
  while (true) {
    while (queue->pending.empty() && !(queue->closed && queue->owned == 0)) {
      queue->changed.Wait(queue->mutex);
    }
    if (queue->pending.empty()) return;
    Pending next = std::move(queue->pending.back());
    queue->pending.pop_back();
    lock.Unlock();
    // A thread for each, so that an engine whose batch never ends does not delay others.
    std::shared_ptr<Pending> pending;
    try {
      pending = std::make_shared<Pending>(std::move(next));
      std::thread([queue, background, pending] {
        EndOne(queue.get(), background, std::move(*pending));
      }).detach();
    } catch (const std::exception&) {  // Neither memory nor a thread is available.
      EndOne(queue.get(), background, std::move(pending ? *pending : next));
    }
    lock.Lock();
  }
}

}  // namespace embershard
