#include "batching/batching_queue.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/divide_up.h"

namespace embershard {
namespace {

BatchSize SizeOf(const Batch& batch) {
  BatchSize size;
  for (const auto& request : batch) {
    size += {.requests = 1, .examples = request->num_examples, .ids = request->num_ids};
  }
  return size;
}

}  // namespace

BatchingQueue::BatchingQueue(const BatchingOptions& options, RunBatch run_batch,
                             CompleteEarly complete_early, Now now,
                             std::shared_ptr<WorkerPool> pool, QueueOwner owner)
    : options_(options),
      run_batch_(std::move(run_batch)),
      complete_early_(std::move(complete_early)),
      now_(std::move(now)),
      owner_(std::move(owner)),
      pool_(std::move(pool)),
      mutex_(pool_->mutex()),
      former_(options),
      running_(options.slots),
      forecast_(options) {
  const MutexLock lock(mutex_);
  pool_->Add(this, owner_.model, owner_.weight);
}

BatchingQueue::BatchingQueue(const BatchingOptions& options, RunBatch run_batch,
                             CompleteEarly complete_early, Now now)
    : BatchingQueue(options, std::move(run_batch), std::move(complete_early), std::move(now),
                    std::make_shared<WorkerPool>(options.slots)) {}

BatchingQueue::~BatchingQueue() { Stop(); }

Admission BatchingQueue::Submit(std::unique_ptr<Request>& request) {
  const MutexLock lock(mutex_);
  if (withdrawn_) return Admission::kWithdrawn;
  if (stopping_) return Admission::kStopped;
  Request* const submitted = request.get();
  const bool may_run_inline = submitted->may_run_inline;
  const Admission admission = former_.Add(request, forecast_, now_(), Share());
  if (admission != Admission::kAccepted) return admission;
  if (submitted->cancellation != nullptr) submitted->cancellation->request = submitted;
  if (submitted->split != nullptr) submitted->split->waiting = submitted;
  WakeTimerBy(submitted->deadline);
  if (may_run_inline && ShouldRunInline()) {
    const Clock::time_point end = now_() + options_.max_inline;
    RunOne();
    // Also run what arrived meanwhile, if time is left: waking a worker would take longer.
    while (CanRun() && IsInline(end - now_())) RunOne();
    NotifyIfDone();
    pool_->WakeForOthers(this);
  }
  WakeForRest();
  return Admission::kAccepted;
}

Admission BatchingQueue::RoomFor(const Request& request) const {
  const MutexLock lock(mutex_);
  if (withdrawn_) return Admission::kWithdrawn;
  return stopping_ ? Admission::kStopped : former_.RoomFor(request);
}

size_t BatchingQueue::ChunksFor(const Request& request) const {
  const MutexLock lock(mutex_);
  const BatchSize size = {.requests = 1, .examples = request.num_examples, .ids = request.num_ids};
  const auto work = forecast_.OfBatch(size);
  const size_t fair = Share() < 1 ? forecast_.PartsWithin(FairShare::kChunk, size,
                                                          options_.max_batch_examples, now_())
                                  : 1;
  const bool idle = former_.empty() && request.priority == Priority::kInteractive;
  const size_t free = idle ? std::max<size_t>(FreeSlots(), 1) : 1;
  return std::max(fair, std::clamp<size_t>(static_cast<size_t>(work / kWorthAChunk), 1, free));
}

std::chrono::nanoseconds BatchingQueue::RetryAfter(const Request& refused) const {
  const MutexLock lock(mutex_);
  return former_.RetryAfter(refused, forecast_, now_(), Share());
}

bool BatchingQueue::CanRun() const {
  mutex_.AssertHeld();
  if (withdrawn_ || FreeSlots() == 0 || !former_.can_take()) return false;
  return IsIdle() || ShouldDispatch(Question());
}

Clock::time_point BatchingQueue::next_deadline() const {
  mutex_.AssertHeld();
  return former_.next_deadline();
}

DispatchQuestion BatchingQueue::Question() const {
  const Clock::time_point now = now_();
  return {.slots = running_.size(),
          .free = FreeSlots(),
          .has_chunk = former_.has_chunk(),
          .fills_batch = former_.fills_batch(),
          .requests = former_.queued().work.requests,
          .work = forecast_.OfBatch(former_.queued().work),
          .deadline = former_.next_deadline(),
          .first_end = forecast_.FirstEnd(now),
          .now = now};
}

Clock::time_point BatchingQueue::NextDispatchCheck() const {
  if (FreeSlots() == 0 || IsIdle() || !former_.can_take()) return Clock::time_point::max();
  return NextDispatchTime(Question());
}

void BatchingQueue::WakeTimerBy(Clock::time_point time) {
  if (time != Clock::time_point::max()) pool_->WakeTimerIn(time - now_());
}

bool BatchingQueue::ShouldRunInline() const {
  return IsIdle() && FreeSlots() > 0 && former_.queued().work.requests == 1 &&
         IsInline(options_.max_inline);
}

bool BatchingQueue::IsInline(std::chrono::nanoseconds time) const {
  const auto predicted = forecast_.OfBatch(former_.queued().work);
  return predicted.count() > 0 && predicted <= time;
}

size_t BatchingQueue::MostExamples() const {
  if (Share() == 1) return SIZE_MAX;
  const BatchSize work = former_.queued().work;
  const size_t parts =
      forecast_.PartsWithin(FairShare::kChunk, work, options_.merge_examples, now_());
  const bool halved = parts > DivideUp(work.examples, options_.merge_examples);
  return halved ? DivideUp(work.examples, parts) : SIZE_MAX;
}

void BatchingQueue::RunOne() {
  Due due = former_.Take(now_(), MostExamples());
  for (Batch* part : {&due.expired, &due.abandoned}) {
    for (const auto& request : *part) Unlink(request.get());
  }
  if (due.failed != nullptr) Unlink(due.failed.get());
  const BatchSize size = SizeOf(due.batch);
  const SlotLease lease = due.lease = pool_->Lease(this, forecast_.OfBatch(size));
  ++runs_;
  running_[lease.number()].Begin(due.batch);
  forecast_.RunBegins(lease.number(), size, now_());
  WakeForRest();  // Submit() woke one worker for all chunks of a split request.
  mutex_.Unlock();
  run_batch_(std::move(due), this);
  mutex_.Lock();
  --runs_;
  pool_->GiveBack(lease);
  forecast_.RunEnds(lease.number(), now_());  // Includes sending answers, which the slot waits for.
}

void BatchingQueue::WakeForRest() {
  if (CanRun()) {
    pool_->WakeWorker();
  } else {
    WakeTimerBy(NextDispatchCheck());
  }
}

void BatchingQueue::Cancel(CancellationHandle* cancellation, StatusReason why) {
  std::optional<EarlyCompletion> early;
  {
    const MutexLock lock(mutex_);
    Request* const request = cancellation->request;
    if (request == nullptr) return;
    if (request->runs) {
      early.emplace(request, why);
    } else {
      early.emplace(former_.Take(*request), why);
    }
    NotifyIfDone();
  }
  complete_early_(std::move(*early));
}

std::unique_ptr<Request> BatchingQueue::Take(const SplitRequest& split) {
  const MutexLock lock(mutex_);
  if (split.waiting == nullptr) return nullptr;
  std::unique_ptr<Request> whole = former_.Take(*split.waiting);
  Unlink(whole.get());
  NotifyIfDone();
  return whole;
}

bool BatchingQueue::IsWanted(const Request& request) const {
  const MutexLock lock(mutex_);
  return request.answer && request.deadline > now_();
}

void BatchingQueue::EndRun(const SlotLease& lease) {
  const MutexLock lock(mutex_);
  running_[lease.number()].End();
}

void BatchingQueue::Stop() {
  std::call_once(stopped_once_, [this] {
    const MutexLock lock(mutex_);
    stopping_ = true;
    while (!IsDone()) done_.Wait(mutex_);
    pool_->Remove(this);
  });
}

QueueSize BatchingQueue::queued() const {
  const MutexLock lock(mutex_);
  return former_.queued();
}

void BatchingQueue::RunNext() {
  mutex_.AssertHeld();
  pool_->WakeForOthers(this);
  RunOne();
  NotifyIfDone();
}

bool BatchingQueue::AnswerOneEarly() {
  mutex_.AssertHeld();
  std::optional<EarlyCompletion> early = TakeExpired(now_());
  if (!early.has_value()) return false;
  early->withdrawn = withdrawn_;
  NotifyIfDone();
  AnswerUnlocked(std::move(*early));
  return true;
}

void BatchingQueue::AnswerUnlocked(EarlyCompletion early) {
  mutex_.Unlock();
  complete_early_(std::move(early));  // Taken by value, so that it is destroyed unlocked.
  mutex_.Lock();
}

Clock::duration BatchingQueue::NextLook() {
  mutex_.AssertHeld();
  Clock::time_point next = former_.next_deadline();
  for (RunningBatch& batch : running_) next = std::min(next, batch.next_deadline());
  if (!CanRun()) next = std::min(next, NextDispatchCheck());
  return next == Clock::time_point::max() ? Clock::duration::max() : next - now_();
}

void BatchingQueue::Withdraw() {
  mutex_.AssertHeld();
  withdrawn_ = true;
}

std::optional<EarlyCompletion> BatchingQueue::TakeExpired(Clock::time_point now) {
  if (withdrawn_) now = Clock::time_point::max();
  for (RunningBatch& batch : running_) {
    if (Request* const expired = batch.FirstExpired(now); expired != nullptr) {
      return EarlyCompletion(expired, StatusReason::kUnstated);
    }
  }
  if (std::unique_ptr<Request> expired = former_.TakeExpired(now); expired != nullptr) {
    return EarlyCompletion(std::move(expired), StatusReason::kUnstated);
  }
  return {};
}

}  // namespace embershard
