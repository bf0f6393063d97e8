#include "engine/retirement.h"

#include <atomic>
#include <exception>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"

namespace embershard {

struct Retirement::Retired {
  std::unique_ptr<Engine> engine;
  std::shared_ptr<const void> claim;
};

struct Retirement::Queue {
  void Bury(Retired last) {
    const MutexLock lock(mutex);
    retired.push_back(std::move(last));
    changed.NotifyAll();  // Under the lock: nothing of this is touched behind it.
  }

  Mutex mutex;
  CondVar changed;                                 // Signalled when the fields below change.
  std::vector<Retired> retired GUARDED_BY(mutex);  // Room for all is reserved.
  size_t owned GUARDED_BY(mutex) = 0;              // That have not ended.
  size_t waiting GUARDED_BY(mutex) = 0;            // Who waits for ends.
  bool closed GUARDED_BY(mutex) = false;
  std::atomic<uint64_t> answered = 0;
};

Retirement::Retirement(Background* background)
    : queue_(std::make_shared<Queue>()),
      thread_([queue = queue_, background] { Run(queue, background); }) {}

Retirement::~Retirement() {
  {
    const MutexLock lock(queue_->mutex);
    queue_->closed = true;
  }
  queue_->changed.NotifyAll();
  thread_.join();
}

std::shared_ptr<Engine> Retirement::Own(std::unique_ptr<Engine> engine,
                                        std::shared_ptr<const void> claim) {
  {
    const MutexLock lock(queue_->mutex);
    queue_->retired.reserve(++queue_->owned);  // Where one is let go, memory may have run out.
  }
  return {engine.release(), [queue = queue_, claim = std::move(claim)](Engine* last) mutable {
            queue->Bury({.engine = std::unique_ptr<Engine>(last), .claim = std::move(claim)});
          }};
}

bool Retirement::WaitForEnds(size_t most, Clock::time_point deadline) {
  const MutexLock lock(queue_->mutex);
  ++queue_->waiting;
  while (queue_->owned > most && queue_->changed.WaitUntil(queue_->mutex, deadline)) continue;
  --queue_->waiting;
  return queue_->owned <= most;
}

uint64_t Retirement::answered() const { return queue_->answered; }

void Retirement::EndOne(Queue* queue, Background* background, Retired retired) {
  retired.engine->Stop();
  queue->answered += retired.engine->telemetry().Read().Count(Outcome::kOk);
  MutexLock lock(queue->mutex);
  const bool hurry = queue->closed || queue->waiting > 0;
  lock.Unlock();
  // What serving threads have allocated ends here: who frees it has the lock of their memory.
  std::unique_ptr<Model> model = Engine::End(std::move(retired.engine));
  (void)RunIn(hurry ? nullptr : background, [&model] {
    model.reset();
    return Status();
  });
  model.reset();  // Where there was no thread for it.
  retired.claim.reset();
  lock.Lock();
  --queue->owned;
  queue->changed.NotifyAll();  // Under the lock: nothing of `background` is touched behind it.
}

void Retirement::Run(const std::shared_ptr<Queue>& queue, Background* background) {
  MutexLock lock(queue->mutex);
  while (true) {
    while (queue->retired.empty() && !(queue->closed && queue->owned == 0)) {
      queue->changed.Wait(queue->mutex);
    }
    if (queue->retired.empty()) return;
    Retired next = std::move(queue->retired.back());
    queue->retired.pop_back();
    lock.Unlock();
    // Each on a thread of its own: an engine whose batch never ends holds up no other.
    std::shared_ptr<Retired> retired;
    try {
      retired = std::make_shared<Retired>(std::move(next));
      std::thread([queue, background, retired] {
        EndOne(queue.get(), background, std::move(*retired));
      }).detach();
    } catch (const std::exception&) {  // Neither memory nor a thread is to be had.
      EndOne(queue.get(), background, std::move(retired ? *retired : next));
    }
    lock.Lock();
  }
}

}  // namespace embershard
