// The request queue of one version: feeds a BatchFormer the real time, from any thread, and runs
// its batches in the slots of a WorkerPool, which several queues share.
//
//   thread      what it does
//   any         Submit(): queues a request; leases a slot and runs it if the version is idle and
//               the request short
//   a worker    runs batches of what is queued
//   the timer   answers requests whose deadline passes while they are queued or run; wakes a worker
//               if a batch is overdue

#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "batching/batch_former.h"
#include "batching/dispatch_policy.h"
#include "batching/forecast.h"
#include "batching/request.h"
#include "batching/running_batch.h"
#include "batching/worker_pool.h"

namespace embershard {

// Whose queue it is.
struct QueueOwner {
  std::string model;  // Its versions share its time.
  double weight = 1;  // Beside other models.
  std::function<void(bool pool_exhausted)> on_withdrawn = [](bool) {};  // Once; on the timer.
};

// Thread-safe. Every accepted request is answered exactly once, at shutdown too.
class BatchingQueue final : private PooledQueue {
 public:
  // Called one batch at a time in each slot, with at least one request, on a worker or from
  // Submit(). Must answer every request in it that has an `answer` when EndRun(due.lease) has
  // returned, which it must call in between: what is in due.batch is not to be answered, and must
  // not go, before that. Must not throw.
  using RunBatch = std::function<void(Due due, BatchingQueue* queue)>;
  // Answers one that is answered early. Any thread, at any time; must not throw.
  using CompleteEarly = std::function<void(EarlyCompletion early)>;
  // Tells the time. Any thread; must not go backwards.
  using Now = std::function<Clock::time_point()>;

  // `pool` runs the batches, and may run those of others. REQUIRES: options as CompleteOptions()
  // gives them; a pool of as many slots.
  BatchingQueue(const BatchingOptions& options, RunBatch run_batch, CompleteEarly complete_early,
                Now now, std::shared_ptr<WorkerPool> pool, QueueOwner owner = {});
  // With a pool of its own.
  BatchingQueue(const BatchingOptions& options, RunBatch run_batch, CompleteEarly complete_early,
                Now now = Clock::now);
  BatchingQueue(const BatchingQueue&) = delete;
  BatchingQueue& operator=(const BatchingQueue&) = delete;
  ~BatchingQueue() override;  // Calls Stop().

  // Waits for the model at most as long as BatchingOptions::max_inline, as far as that can be
  // predicted, and never for a batch of others. Ownership as in BatchFormer::Add().
  [[nodiscard]] Admission Submit(std::unique_ptr<Request>& request);

  // As BatchFormer::RoomFor(), of the moment: before a request is cut, which costs.
  Admission RoomFor(const Request& request) const;

  // Into how many chunks the request is worth splitting: one for each idle slot if nothing waits
  // and it is known to take long; at least Forecast::PartsWithin() FairShare::kChunk while another
  // model is active.
  size_t ChunksFor(const Request& request) const;

  // As BatchFormer::RetryAfter(), of the moment.
  std::chrono::nanoseconds RetryAfter(const Request& refused) const;

  // Answers the request of the handle, unless that has happened, and frees what it holds
  // here: all if it waits; if it runs, the model goes on. `why` as in EarlyCompletion. Stop() does
  // not wait for this call, which the queue must outlive.
  void Cancel(CancellationHandle* cancellation, StatusReason why);

  // Takes a request out that is cut and is to be answered; null where it has been.
  std::unique_ptr<Request> Take(const SplitRequest& split);

  // For RunBatch: whether a request of the batch has not been answered, and has time left.
  bool IsWanted(const Request& request) const;

  // For RunBatch: the model has done with the batch of this lease.
  void EndRun(const SlotLease& lease);

  // Refuses new requests, runs the accepted ones, and returns when the last has
  // been answered. Safe to call more than once, but not from `run_batch`.
  void Stop();

  // Of the moment; for metrics.
  QueueSize queued() const;

 private:
  // What a chunk takes, and no less, of a request that is split because slots are idle.
  static constexpr std::chrono::microseconds kWorthAChunk{500};

  bool CanRun() const override;
  Clock::time_point next_deadline() const override;
  void RunNext() override;
  bool AnswerOneEarly() override;
  Clock::duration NextLook() override;
  void Withdraw() override;
  void OnWithdrawn(bool pool_exhausted) override { owner_.on_withdrawn(pool_exhausted); }

  // Has the timer look at this time at the latest.
  void WakeTimerBy(Clock::time_point time) REQUIRES(mutex_);
  // Wakes a worker if a batch can be formed; otherwise sets the timer to when one may be. A busy
  // worker looks for another batch after its own.
  void WakeForRest() REQUIRES(mutex_);
  // Forms a batch and runs it. The mutex is not held meanwhile. REQUIRES: CanRun().
  void RunOne() REQUIRES(mutex_);
  // REQUIRES: a slot is free, another runs, and something can be taken.
  DispatchQuestion Question() const REQUIRES(mutex_);
  // When CanRun() may become true for requests queued beside a free slot; max() if none are.
  Clock::time_point NextDispatchCheck() const REQUIRES(mutex_);
  // Which slots are neither taken by this queue's batches nor by those of others.
  size_t FreeSlots() const REQUIRES(mutex_) { return pool_->free_slots(); }
  bool IsIdle() const REQUIRES(mutex_) { return runs_ == 0; }
  // The most examples that one batch may take: Forecast::PartsWithin() FairShare::kChunk. No limit
  // while no other model is active.
  size_t MostExamples() const REQUIRES(mutex_);
  // Which part of the slots the model has beside others that are active.
  double Share() const REQUIRES(mutex_) { return pool_->ShareOf(this); }
  // Whether all has been run, and no more will come.
  bool IsDone() const REQUIRES(mutex_) { return stopping_ && former_.empty() && IsIdle(); }
  // For Stop().
  void TellIfDone() REQUIRES(mutex_) {
    if (IsDone()) done_.NotifyAll();
  }
  // Whether all that waits is better run at once by the thread that submits it.
  bool ShouldRunInline() const REQUIRES(mutex_);
  // Whether all that waits is known to take no longer than `time`.
  bool IsInline(std::chrono::nanoseconds time) const REQUIRES(mutex_);
  void AnswerUnlocked(EarlyCompletion early) REQUIRES(mutex_);
  // One whose deadline has passed, or any if the version is withdrawn.
  std::optional<EarlyCompletion> TakeExpired(Clock::time_point now) REQUIRES(mutex_);

  const BatchingOptions options_;
  const RunBatch run_batch_;
  const CompleteEarly complete_early_;
  const Now now_;
  const QueueOwner owner_;

  const std::shared_ptr<WorkerPool> pool_;
  Mutex& mutex_;  // The pool's.
  CondVar done_;  // Signalled when IsDone() becomes true.
  BatchFormer former_ GUARDED_BY(mutex_);
  std::vector<RunningBatch> running_ GUARDED_BY(mutex_);  // By slot.
  size_t runs_ GUARDED_BY(mutex_) = 0;                    // Batches that run.
  Forecast forecast_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  bool withdrawn_ GUARDED_BY(mutex_) = false;

  std::once_flag stopped_once_;
};

}  // namespace embershard
