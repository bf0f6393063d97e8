// The request queue of one version. It passes requests of any thread and the current time to a
// BatchFormer, and runs the batches in the slots of a WorkerPool that several queues share.
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

struct QueueOwner {
  std::string model;  // Versions of one model share its time.
  double weight = 1;  // Weight of the model among all models.
  // Called at most once, on the timer's thread.
  std::function<void(bool pool_exhausted)> on_withdrawn = [](bool) {};
};

// Thread-safe. Every accepted request is answered exactly once, also at shutdown.
class BatchingQueue final : private PooledQueue {
 public:
  // Runs a batch of at least one request, on a worker or inside Submit(), and never two at once in
  // one slot. It must call EndRun(due.lease) after the model has run, and keep due.batch until that
  // returns. Then it must answer each request that still has an `answer`. Must not throw.
  using RunBatch = std::function<void(Due due, BatchingQueue* queue)>;
  // Answers a request early. Called on any thread, at any time; must not throw.
  using CompleteEarly = std::function<void(EarlyCompletion early)>;
  // Returns the current time. Called on any thread; must not go backwards.
  using Now = std::function<Clock::time_point()>;

  // Other queues may share `pool`. REQUIRES: options from CompleteOptions(), with as many slots as
  // the pool.
  BatchingQueue(const BatchingOptions& options, RunBatch run_batch, CompleteEarly complete_early,
                Now now, std::shared_ptr<WorkerPool> pool, QueueOwner owner = {});
  // Creates a pool of its own.
  BatchingQueue(const BatchingOptions& options, RunBatch run_batch, CompleteEarly complete_early,
                Now now = Clock::now);
  BatchingQueue(const BatchingQueue&) = delete;
  BatchingQueue& operator=(const BatchingQueue&) = delete;
  ~BatchingQueue() override;  // Calls Stop().

  // Queues a request, or runs it if the model is idle and it is predicted to take at most
  // BatchingOptions::max_inline. Never waits for another batch. Takes ownership if it returns
  // kAccepted, as BatchFormer::Add() does.
  [[nodiscard]] Admission Submit(std::unique_ptr<Request>& request);

  // Called before a request is split, which is expensive.
  Admission RoomFor(const Request& request) const;

  // The number of chunks worth splitting the request into: one for each idle slot if nothing is
  // queued and the request is known to take long. At least enough that a chunk takes
  // FairShare::kChunk while another model is active.
  size_t ChunksFor(const Request& request) const;

  std::chrono::nanoseconds RetryAfter(const Request& refused) const;

  // Answers the handle's request, unless that has happened. A queued request is freed; the model
  // continues a running one. The queue must outlive this call; Stop() does not wait for it.
  void Cancel(CancellationHandle* cancellation, StatusReason why);

  // Removes a split request in order to answer it. Null if it was answered already.
  std::unique_ptr<Request> Take(const SplitRequest& split);

  // For RunBatch: true if the request was not answered yet and its deadline has not passed.
  bool IsWanted(const Request& request) const;

  // For RunBatch: says that the model has finished the batch of this lease.
  void EndRun(const SlotLease& lease);

  // Refuses new requests and returns after all accepted ones are answered. May be called more than
  // once, but not from `run_batch`.
  void Stop();

  QueueSize queued() const;

 private:
  // Shortest predicted time of a chunk if a request is split over idle slots. Other splits have
  // limits of their own.
  static constexpr std::chrono::microseconds kWorthAChunk{500};

  bool CanRun() const override;
  Clock::time_point next_deadline() const override;
  void RunNext() override;
  bool AnswerOneEarly() override;
  Clock::duration NextLook() override;
  void Withdraw() override;
  void OnWithdrawn(bool pool_exhausted) override { owner_.on_withdrawn(pool_exhausted); }

  void WakeTimerBy(Clock::time_point time) REQUIRES(mutex_);
  // Wakes a worker if a batch can be formed; otherwise sets the timer to when one may be.
  void WakeForRest() REQUIRES(mutex_);
  // Forms a batch and runs it. The mutex is not held meanwhile. REQUIRES: CanRun().
  void RunOne() REQUIRES(mutex_);
  // REQUIRES: a slot is free, another runs, and something can be taken.
  DispatchQuestion Question() const REQUIRES(mutex_);
  // When CanRun() may become true although a slot is free and no request arrives; else max().
  Clock::time_point NextDispatchCheck() const REQUIRES(mutex_);
  size_t FreeSlots() const REQUIRES(mutex_) { return pool_->free_slots(); }
  bool IsIdle() const REQUIRES(mutex_) { return runs_ == 0; }
  // A batch takes about FairShare::kChunk while another model is active. No limit otherwise.
  size_t MostExamples() const REQUIRES(mutex_);
  double Share() const REQUIRES(mutex_) { return pool_->ShareOf(this); }
  bool IsDone() const REQUIRES(mutex_) { return stopping_ && former_.empty() && IsIdle(); }
  void NotifyIfDone() REQUIRES(mutex_) {
    if (IsDone()) done_.NotifyAll();
  }
  bool ShouldRunInline() const REQUIRES(mutex_);
  bool IsInline(std::chrono::nanoseconds time) const REQUIRES(mutex_);
  void AnswerUnlocked(EarlyCompletion early) REQUIRES(mutex_);
  // A request whose deadline has passed; any request if the version is withdrawn.
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
