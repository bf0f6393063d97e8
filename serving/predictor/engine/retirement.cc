#include "engine/retirement.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "base/status.h"

namespace embershard {

struct Retirement::Queue {
  struct Retired {
    std::unique_ptr<Engine> engine;
    std::shared_ptr<const void> claim;
  };

  void Bury(Retired last) {
    const std::lock_guard lock(mutex);
    retired.push_back(std::move(last));
    changed.notify_all();  // Under the lock: nothing of this is touched behind it.
  }

  std::mutex mutex;
  std::condition_variable changed;  // Signalled when the fields below change.
  std::vector<Retired> retired;     // Guarded by mutex. Room for all is reserved.
  size_t owned = 0;                 // Guarded by mutex. That have not ended.
  size_t waiting = 0;               // Guarded by mutex. Who waits for ends.
  bool closed = false;              // Guarded by mutex.
  std::atomic<uint64_t> answered = 0;
};

Retirement::Retirement(Background* background)
    : queue_(std::make_shared<Queue>()),
      thread_([queue = queue_, background] { Run(queue, background); }) {}

Retirement::~Retirement() {
  {
    const std::lock_guard lock(queue_->mutex);
    queue_->closed = true;
  }
  queue_->changed.notify_all();
  thread_.join();
}

std::shared_ptr<Engine> Retirement::Own(std::unique_ptr<Engine> engine,
                                        std::shared_ptr<const void> claim) {
  {
    const std::lock_guard lock(queue_->mutex);
    queue_->retired.reserve(++queue_->owned);  // Where one is let go, memory may have run out.
  }
  return {engine.release(), [queue = queue_, claim = std::move(claim)](Engine* last) mutable {
            queue->Bury({.engine = std::unique_ptr<Engine>(last), .claim = std::move(claim)});
          }};
}

bool Retirement::WaitForEnds(size_t most, Clock::time_point deadline) {
  std::unique_lock lock(queue_->mutex);
  ++queue_->waiting;
  const bool ended =
      queue_->changed.wait_until(lock, deadline, [&] { return queue_->owned <= most; });
  --queue_->waiting;
  return ended;
}

uint64_t Retirement::answered() const { return queue_->answered; }

void Retirement::Run(const std::shared_ptr<Queue>& queue, Background* background) {
  std::unique_lock lock(queue->mutex);
  while (true) {
    queue->changed.wait(
        lock, [&queue] { return !queue->retired.empty() || (queue->closed && queue->owned == 0); });
    if (queue->retired.empty()) return;
    auto [engine, claim] = std::move(queue->retired.back());
    queue->retired.pop_back();
    const bool hurry = queue->closed || queue->waiting > 0;
    lock.unlock();
    engine->Stop();
    queue->answered += engine->telemetry().Read().Count(Outcome::kOk);
    // What serving threads have allocated ends here: who frees it has the lock of their memory.
    std::unique_ptr<Model> model = Engine::End(std::move(engine));
    (void)RunIn(hurry ? nullptr : background, [&model] {
      model.reset();
      return Status();
    });
    model.reset();  // Where there was no thread for it.
    claim.reset();
    lock.lock();
    --queue->owned;
    queue->changed.notify_all();
  }
}

}  // namespace embershard
