#include "batching/worker_pool.h"

#include <pthread.h>

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>

#include "batching/time_slice.h"

namespace embershard {
namespace {

// Longest wait on a condition variable.
constexpr std::chrono::hours kLongestSleep{1};

thread_local size_t this_worker = SIZE_MAX;
thread_local const WorkerPool* this_pool = nullptr;

}  // namespace

WorkerPool::WorkerPool(size_t slots, const WorkerPoolOptions& options)
    : slots_(slots), options_(options), leased_(slots), free_(slots) {
  std::iota(free_.rbegin(), free_.rend(), size_t{0});
  for (const size_t number : free_) leased_[number].buffers = std::make_shared<Slot>(number);
  try {
    const MutexLock lock(mutex_);
    while (threads_.size() < slots) StartWorker();
    timer_thread_ = std::thread([this] { Time(); });
  } catch (...) {
    Stop();
    throw;
  }
}

WorkerPool::~WorkerPool() { Stop(); }

void WorkerPool::Stop() {
  std::vector<std::thread> threads;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    for (const auto& worker : workers_) worker->wake.NotifyOne();
    threads = std::move(threads_);
  }
  look_.NotifyOne();
  if (timer_thread_.joinable()) timer_thread_.join();
  for (std::thread& thread : threads) thread.join();
}

void WorkerPool::StartWorker() {
  workers_.push_back(std::make_unique<Worker>());
  threads_.emplace_back([this, number = workers_.size() - 1] { Work(number); });
}

void WorkerPool::Work(size_t number) {
  (void)pthread_setname_np(pthread_self(), "batch-worker");
  (void)SetTimeSlice(kTimeSlice);  // Optional: without it other threads wait longer.
  this_worker = number;
  this_pool = this;
  const MutexLock lock(mutex_);
  Worker* const self = workers_[number].get();
  while (!stopping_ && !self->replaced) {
    PooledQueue* const queue = free_.empty() ? nullptr : NextQueue();
    if (queue != nullptr) {
      queue->RunNext();
      continue;
    }
    self->idle = true;
    idle_.push_back(number);
    while (self->idle && !stopping_) self->wake.Wait(mutex_);
    one_wakes_ = false;
  }
}

void WorkerPool::WakeWorker() {
  mutex_.AssertHeld();
  if (one_wakes_ || idle_.empty() || free_.empty()) return;
  one_wakes_ = true;
  Worker* const last = workers_[idle_.back()].get();
  idle_.pop_back();
  last->idle = false;
  last->wake.NotifyOne();
}

void WorkerPool::WakeForOthers(const PooledQueue* own) {
  mutex_.AssertHeld();
  if (free_.empty()) return;
  const auto has_some = [own](const Entry& entry) {
    return entry.queue != own && entry.queue->CanRun();
  };
  if (std::ranges::any_of(queues_, has_some)) WakeWorker();
}

void WorkerPool::WakeTimerIn(Clock::duration time) {
  mutex_.AssertHeld();
  if (time >= kLongestSleep) return;
  const Clock::time_point at = Clock::now() + time;
  if (at >= timer_) return;
  timer_ = at;
  look_.NotifyOne();
}

void WorkerPool::Add(PooledQueue* queue, const std::string& model, double weight) {
  mutex_.AssertHeld();
  queues_.reserve(queues_.size() + 1);
  queues_.push_back({.queue = queue, .name = model, .model = shares_.Add(model, weight)});
}

void WorkerPool::Remove(PooledQueue* queue) {
  mutex_.AssertHeld();
  while (timed_ == queue) looked_.Wait(mutex_);
  const auto entry = std::ranges::find(queues_, queue, &Entry::queue);
  if (entry == queues_.end()) return;
  shares_.Remove(entry->name);
  queues_.erase(entry);
}

const WorkerPool::Entry& WorkerPool::EntryOf(const PooledQueue* queue) const {
  return *std::ranges::find(queues_, queue, &Entry::queue);
}

double WorkerPool::ShareOf(const PooledQueue* queue) const {
  mutex_.AssertHeld();
  return queues_.size() < 2 ? 1 : shares_.ShareOf(*EntryOf(queue).model, Clock::now());
}

PooledQueue* WorkerPool::NextQueue() const {
  const Entry* next = nullptr;
  for (const Entry& entry : queues_) {
    if (!entry.queue->CanRun()) continue;
    const bool first =
        next == nullptr ||
        (entry.model == next->model ? entry.queue->next_deadline() < next->queue->next_deadline()
                                    : shares_.IsBefore(*entry.model, *next->model));
    if (first) next = &entry;
  }
  return next == nullptr ? nullptr : next->queue;
}

SlotLease WorkerPool::Lease(PooledQueue* queue, std::chrono::nanoseconds expected) {
  mutex_.AssertHeld();
  const size_t number = free_.back();
  free_.pop_back();
  Leased& slot = leased_[number];
  slot.serial = ++leases_;
  slot.queue = queue;
  slot.model = EntryOf(queue).model;
  slot.expected = expected;
  slot.since = Clock::now();
  slot.worker = this_pool == this ? this_worker : kInline;
  shares_.Begin(slot.model, expected, slot.since);
  WakeTimerIn(options_.stuck_after);
  return {.serial = slot.serial, .buffers = slot.buffers};
}

void WorkerPool::GiveBack(const SlotLease& lease) {
  mutex_.AssertHeld();
  Leased& slot = leased_[lease.number()];
  if (slot.serial != lease.serial) return;  // This batch was stuck, and its slot leased again.
  slot.serial = 0;
  shares_.End(slot.model, slot.expected, Clock::now() - slot.since);
  free_.push_back(lease.number());
}

Clock::time_point WorkerPool::NextStuck() const {
  Clock::time_point next = Clock::time_point::max();
  if (replaced_ >= slots_) return next;
  for (const Leased& slot : leased_) {
    if (slot.serial != 0) next = std::min(next, slot.since + options_.stuck_after);
  }
  return next;
}

bool WorkerPool::ReplaceOneStuck(Clock::time_point now) {
  if (replaced_ >= slots_) return false;
  const auto stuck = std::ranges::find_if(leased_, [&](const Leased& slot) {
    return slot.serial != 0 && now - slot.since >= options_.stuck_after;
  });
  if (stuck == leased_.end()) return false;
  PooledQueue* const queue = stuck->queue;
  const auto number = static_cast<size_t>(stuck - leased_.begin());
  try {
    auto buffers = std::make_shared<Slot>(number);
    if (stuck->worker != kInline) {
      StartWorker();
      workers_[stuck->worker]->replaced = true;
    }
    stuck->buffers = std::move(buffers);
  } catch (const std::exception&) {  // No memory or thread is left: retry after `stuck_after`.
    stuck->since = now;
    return false;
  }
  shares_.End(stuck->model, stuck->expected, now - stuck->since);
  stuck->serial = 0;
  free_.push_back(number);
  const bool exhausted = ++replaced_ >= slots_;
  timed_ = queue;
  queue->Withdraw();
  mutex_.Unlock();
  queue->OnWithdrawn(exhausted);
  mutex_.Lock();
  timed_ = nullptr;
  looked_.NotifyAll();
  WakeWorker();
  return true;
}

void WorkerPool::Time() {
  const MutexLock lock(mutex_);
  while (!stopping_) {
    timer_ = Clock::time_point::min();  // No wake-up is needed while all queues are checked.
    if (ReplaceOneStuck(Clock::now())) continue;
    Clock::time_point next = std::min(Clock::now() + kLongestSleep, NextStuck());
    bool again = false;
    bool can_run = false;
    for (const Entry& entry : queues_) {
      timed_ = entry.queue;
      again = entry.queue->AnswerOneEarly();  // May change queues_, since it releases the mutex.
      if (again) break;
      next = std::min(
          next, Clock::now() + std::min<Clock::duration>(entry.queue->NextLook(), kLongestSleep));
      can_run = can_run || entry.queue->CanRun();
    }
    timed_ = nullptr;
    looked_.NotifyAll();
    if (again) continue;
    if (can_run) WakeWorker();
    timer_ = next;
    (void)look_.WaitUntil(mutex_, next);
  }
}

}  // namespace embershard
