// The threads that run batches, for all models and versions of a server.
//
//   worker   one of as many threads as slots: runs batches of the queues that have some
//   slot     what every batch leases while it runs: a worker's, or an inline caller's. There are as
//            many as workers, so that no more batches run at once, on workers or inline
//   timer    one thread: deadlines of all queues, and batches that do not end
//
// A worker that has been in one batch for `stuck_after` is replaced, its slot is leased anew, and
// its queue is withdrawn. No more workers are replaced than there are slots. The stuck batch keeps
// running in its model under the slot's number. No other batch of that model runs under it: the
// same critical section withdraws the queue, and a withdrawn queue begins no further batch.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "batching/fair_share.h"
#include "model/slot.h"

namespace embershard {

// Held by the thread that runs a batch. The buffers are nobody else's until it is returned, and
// those of a batch that does not end stay its own.
struct SlotLease {
  size_t number() const { return buffers->number; }  // Below WorkerPool::slots().

  uint64_t serial = 0;  // Of this lease.
  std::shared_ptr<Slot> buffers;
};

// A request queue as the pool sees it. REQUIRES of all calls: the pool's mutex is held.
class PooledQueue {
 public:
  virtual ~PooledQueue() = default;

  // Whether a batch can be formed, a slot being free.
  virtual bool CanRun() const = 0;
  // The earliest deadline of what is queued; max() where none is.
  virtual Clock::time_point next_deadline() const = 0;
  // Forms a batch and runs it. The mutex is not held meanwhile. Behind it the queue may be gone.
  virtual void RunNext() = 0;
  // Answers one request whose deadline has passed, or that is queued here although the queue is
  // withdrawn; the mutex is not held meanwhile. False: there was none.
  virtual bool AnswerOneEarly() = 0;
  // After how long AnswerOneEarly() or CanRun() may change, if nothing else happens.
  virtual Clock::duration NextLook() = 0;
  // A batch of it does not end: it accepts nothing more. Told again by Withdrawn(), unlocked.
  virtual void Withdraw() = 0;
  // REQUIRES: the mutex is not held.
  virtual void OnWithdrawn(bool pool_exhausted) = 0;
};

struct WorkerPoolOptions {
  // No batch takes so long: a program that does not end, or a disk that does not answer.
  Clock::duration stuck_after = std::chrono::seconds(10);
};

// Thread-safe. One mutex guards it and all its queues.
class WorkerPool {
 public:
  explicit WorkerPool(size_t slots, const WorkerPoolOptions& options = {});
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;
  // Waits for batches that do not end, too. REQUIRES: no queue is left. Not on one of its threads.
  ~WorkerPool();

  Mutex& mutex() RETURN_CAPABILITY(mutex_) { return mutex_; }
  size_t slots() const { return slots_; }

  // The rest REQUIRES the mutex to be held.

  // Versions of one model share its part of the time.
  void Add(PooledQueue* queue, const std::string& model, double weight);
  // Waits until the timer does not look at the queue; not from OnWithdrawn().
  void Remove(PooledQueue* queue);

  size_t free_slots() const { return free_.size(); }
  // The queue's batch begins, which is expected to take so long. REQUIRES: a slot is free.
  SlotLease Lease(PooledQueue* queue, std::chrono::nanoseconds expected);
  void GiveBack(const SlotLease& lease);

  // Has a worker that is idle look for work. One that runs a batch looks by itself.
  void WakeWorker();
  // The same if another queue than `own` can run: for the thread that begins a batch of `own`,
  // and may have been woken for others, and for an inline caller that has given its slot back.
  void WakeForOthers(const PooledQueue* own);
  // Has the timer look in so long at the latest.
  void WakeTimerIn(Clock::duration time);

  // Which part of the slots is the queue's while others are active: see FairShare::ShareOf().
  double ShareOf(const PooledQueue* queue) const;

 private:
  // So long a worker may run before another thread of its processor does: longer than the default,
  // 1.4 to 2.8 ms, so that a thread that parses a request need not wait for a batch.
  static constexpr std::chrono::milliseconds kTimeSlice{5};
  static constexpr size_t kInline = SIZE_MAX;

  struct Entry {
    PooledQueue* queue = nullptr;
    std::string name;
    FairShare::Model* model = nullptr;
  };
  struct Leased {
    uint64_t serial = 0;  // 0: free.
    std::shared_ptr<Slot> buffers;
    PooledQueue* queue = nullptr;
    FairShare::Model* model = nullptr;
    std::chrono::nanoseconds expected{0};
    Clock::time_point since;
    size_t worker = kInline;
  };
  struct Worker {
    bool replaced = false;
    bool idle = false;
    CondVar wake;
  };

  void StartWorker() REQUIRES(mutex_);
  void Stop();
  void Work(size_t number);
  void Time();
  // Of the queues that can run, that of the model whose turn it is, earliest deadline first.
  PooledQueue* NextQueue() const REQUIRES(mutex_);
  // Whether one was replaced. Gives the mutex back meanwhile.
  bool ReplaceOneStuck(Clock::time_point now) REQUIRES(mutex_);
  // When the next batch that runs will have run for too long.
  Clock::time_point NextStuck() const REQUIRES(mutex_);
  const Entry& EntryOf(const PooledQueue* queue) const REQUIRES(mutex_);

  const size_t slots_;
  const WorkerPoolOptions options_;

  mutable Mutex mutex_;
  std::vector<Entry> queues_ GUARDED_BY(mutex_);
  FairShare shares_ GUARDED_BY(mutex_);
  std::vector<Leased> leased_ GUARDED_BY(mutex_);  // By slot.
  std::vector<size_t> free_;                       // Guarded by mutex_. Slots; the last is next.
  uint64_t leases_ GUARDED_BY(mutex_) = 0;
  size_t replaced_ = 0;  // Guarded by mutex_.
  bool stopping_ GUARDED_BY(mutex_) = false;

  // Idle workers are woken last in, first out, since the memory of the last may still be in the
  // processor's caches; and one at a time, since what comes meanwhile that one sees.
  std::vector<size_t> idle_ GUARDED_BY(mutex_);
  bool one_wakes_ GUARDED_BY(mutex_) = false;

  CondVar look_;    // Signalled when timer_ becomes earlier, or to stop.
  CondVar looked_;  // Signalled when timed_ becomes null.
  Clock::time_point timer_ GUARDED_BY(mutex_);       // When the timer looks next.
  PooledQueue* timed_ GUARDED_BY(mutex_) = nullptr;  // Which the timer looks at.

  std::vector<std::unique_ptr<Worker>> workers_ GUARDED_BY(mutex_);  // Replaced ones, too.
  std::vector<std::thread> threads_;  // Guarded by mutex_ until stopping_. By worker.
  std::thread timer_thread_;          // Last, so that Time() sees every field built.
};

}  // namespace embershard
