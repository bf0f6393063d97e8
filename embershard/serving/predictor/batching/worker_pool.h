// The threads that run batches of all models and versions of a server.
//
//   worker   a thread that runs batches of any queue; there are as many workers as slots
//   slot     leased by every batch that runs, on a worker or inline; limits the number of batches
//            that run at once
//   timer    one thread that watches the deadlines of all queues and batches that do not end
//
// If a worker has been in one batch for `stuck_after`, it is replaced, its slot becomes free, and
// the batch's queue is withdrawn. At most as many workers as slots are ever replaced. The stuck
// batch keeps running in its model under the slot's number. No other batch of that model uses the
// number, because the queue is withdrawn in the same critical section.

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

// Held by the thread that runs a batch. The buffers belong to that batch until the lease is
// returned; a batch that does not end keeps them.
struct SlotLease {
  size_t number() const { return buffers->number; }  // Below WorkerPool::slots().

  uint64_t serial = 0;  // Identifies this lease.
  std::shared_ptr<Slot> buffers;
};

// A request queue as the pool sees it. All calls REQUIRE the pool's mutex unless stated otherwise.
class PooledQueue {
 public:
  virtual ~PooledQueue() = default;

  virtual bool CanRun() const = 0;
  virtual Clock::time_point next_deadline() const = 0;
  // Forms a batch and runs it with the mutex released. The queue may be destroyed as soon as this
  // returns.
  virtual void RunNext() = 0;
  // Answers one request whose deadline has passed, or any queued request if the queue is withdrawn.
  // Releases the mutex meanwhile. Returns false if there was none.
  virtual bool AnswerOneEarly() = 0;
  // Time until AnswerOneEarly() or CanRun() may change, if nothing else happens.
  virtual Clock::duration NextLook() = 0;
  // Makes the queue refuse all requests, because a batch of it does not end. OnWithdrawn() follows.
  virtual void Withdraw() = 0;
  // Called after Withdraw(). REQUIRES: the mutex is not held.
  virtual void OnWithdrawn(bool pool_exhausted) = 0;
};

struct WorkerPoolOptions {
  // A batch that runs longer counts as stuck: its program does not end, or a disk does not answer.
  Clock::duration stuck_after = std::chrono::seconds(10);
};

// Thread-safe. One mutex guards it and all its queues.
class WorkerPool {
 public:
  explicit WorkerPool(size_t slots, const WorkerPoolOptions& options = {});
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;
  // Waits for all batches, also stuck ones. REQUIRES: all queues were removed, and this is not one
  // of the pool's threads.
  ~WorkerPool();

  Mutex& mutex() RETURN_CAPABILITY(mutex_) { return mutex_; }
  size_t slots() const { return slots_; }

  // The methods below REQUIRE the mutex. Versions of one model share its part of the time.
  void Add(PooledQueue* queue, const std::string& model, double weight);
  // Waits until the timer has finished with the queue. Must not be called from OnWithdrawn().
  void Remove(PooledQueue* queue);

  size_t free_slots() const { return free_.size(); }
  // Leases a slot for a batch that is expected to take this long. REQUIRES: a slot is free.
  SlotLease Lease(PooledQueue* queue, std::chrono::nanoseconds expected);
  void GiveBack(const SlotLease& lease);

  // Wakes an idle worker. Busy workers look for work after their batch anyway.
  void WakeWorker();
  // Wakes an idle worker if a queue other than `own` can run. Called by threads that start a batch
  // of `own` but may have been woken for another queue, and by inline callers that returned their
  // slot.
  void WakeForOthers(const PooledQueue* own);
  void WakeTimerIn(Clock::duration time);

  double ShareOf(const PooledQueue* queue) const;

 private:
  // Time slice of the workers. It is longer than the default of 1.4 to 2.8 ms, so that a thread
  // that parses a request preempts a batch instead of waiting for it.
  static constexpr std::chrono::milliseconds kTimeSlice{5};
  static constexpr size_t kInline = SIZE_MAX;

  struct Entry {
    PooledQueue* queue = nullptr;
    std::string name;
    FairShare::Model* model = nullptr;
  };
  struct Leased {
    uint64_t serial = 0;  // 0: the slot is free.
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
  // The runnable queue of the model whose turn it is; among its versions the earliest deadline.
  PooledQueue* NextQueue() const REQUIRES(mutex_);
  // Replaces one stuck worker. Returns false if there is none. Releases the mutex meanwhile.
  bool ReplaceOneStuck(Clock::time_point now) REQUIRES(mutex_);
  Clock::time_point NextStuck() const REQUIRES(mutex_);
  const Entry& EntryOf(const PooledQueue* queue) const REQUIRES(mutex_);

  const size_t slots_;
  const WorkerPoolOptions options_;

  mutable Mutex mutex_;
  std::vector<Entry> queues_ GUARDED_BY(mutex_);
  FairShare shares_ GUARDED_BY(mutex_);
  std::vector<Leased> leased_ GUARDED_BY(mutex_);  // By slot.
  std::vector<size_t> free_;                       // Guarded by mutex_. Used from the back.
  uint64_t leases_ GUARDED_BY(mutex_) = 0;
  size_t replaced_ = 0;  // Guarded by mutex_.
  bool stopping_ GUARDED_BY(mutex_) = false;

  // Idle workers are woken last in, first out, since the data of the last may still be in the
  // caches. Only one is woken at a time, since it also sees requests that arrive meanwhile.
  std::vector<size_t> idle_ GUARDED_BY(mutex_);
  bool one_wakes_ GUARDED_BY(mutex_) = false;

  CondVar look_;    // Signalled when timer_ becomes earlier, or to stop.
  CondVar looked_;  // Signalled when timed_ becomes null.
  Clock::time_point timer_ GUARDED_BY(mutex_);       // Next time at which the timer wakes.
  PooledQueue* timed_ GUARDED_BY(mutex_) = nullptr;  // The queue that the timer checks now.
  std::vector<std::unique_ptr<Worker>> workers_ GUARDED_BY(mutex_);  // Includes replaced workers.
  std::vector<std::thread> threads_;  // Guarded by mutex_ until stopping_. By worker.
  std::thread timer_thread_;          // Last, so that Time() starts after all fields exist.
};

}  // namespace embershard
