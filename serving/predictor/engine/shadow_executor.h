// Runs copies of requests for shadow versions, in a share of the time, and of that in what all
// other threads leave.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <thread>

#include "base/clock.h"
#include "base/mutex.h"
#include "batching/request.h"
#include "engine/engine.h"

namespace embershard {

// Thread-safe. Every copy is answered exactly once: kUnavailable where its version is no shadow any
// more, or this ends. Deadlines do not count: nobody waits.
class ShadowExecutor {
 public:
  // Whether the version gets copies, and no other requests. Asked before each batch: while one
  // runs here, others that the version gets wait for it, and may wait for long. Asked often while
  // copies wait, too: those of another version are refused, and keep it no longer.
  using IsShadow = std::function<bool(const Engine& engine)>;

  // What is run as one batch of copies: so small that caches stay with those who serve.
  static constexpr size_t kBatchCopies = 8;
  static constexpr uint64_t kBatchExamples = 256;  // One copy that has more runs alone.

  // `time`: 1e-9 .. 1, the share of the time in which a batch of copies is under way, whether it
  // has a processor or waits for one; 1: always, while there are copies. No rest between two
  // batches is longer than a minute, be the share what it may.
  ShadowExecutor(IsShadow is_shadow, double time);
  ShadowExecutor(const ShadowExecutor&) = delete;
  ShadowExecutor& operator=(const ShadowExecutor&) = delete;
  ~ShadowExecutor();  // Calls Stop().

  // Waits for the batch that runs. The copies that wait or come later are answered kUnavailable.
  // `is_shadow` is not called after that. Safe to repeat.
  void Stop();

  // Has `engine` answer the copy some time. How many wait is the caller's to bound.
  void Give(std::shared_ptr<Engine> engine, std::unique_ptr<Request> copy) noexcept;

 private:
  struct Waiting {
    std::shared_ptr<Engine> engine;
    std::unique_ptr<Request> copy;
  };

  void Loop();
  // Waits until there are copies, and until `next`, but not for long. Takes all that wait, behind
  // those in `taken`. False: this ends.
  bool Take(Clock::time_point next, std::list<Waiting>* taken);
  // Answers those whose version is no shadow any more.
  void RefuseOthers(std::list<Waiting>* taken);
  // Runs what comes first, and what follows it and fits its batch. When the next batch may begin.
  // REQUIRES: `taken` has some.
  Clock::time_point RunFirst(std::list<Waiting>* taken);

  const IsShadow is_shadow_;
  const double time_;

  Mutex mutex_;      // Held for moments only: its holder may have to wait for a processor.
  CondVar changed_;  // Signalled when the fields below change.
  std::list<Waiting> waiting_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;

  std::thread thread_;  // Last, so that Loop() sees every field built.
};

}  // namespace embershard
