#include "batching/batching_queue.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

namespace embershard {
namespace {

// So far ahead a condition variable can count.
constexpr std::chrono::hours kLongestSleep{1};

BatchSize SizeOf(const Batch& batch) {
  BatchSize size = {.requests = batch.size()};
  for (const auto& request : batch) {
    size.examples += request->num_examples;
    size.ids += request->num_ids;
  }
  return size;
}

}  // namespace

BatchingQueue::BatchingQueue(const BatchingOptions& options, RunBatch run_batch,
                             AnswerLate answer_late, Now now, std::shared_ptr<SlotThreads> threads)
    : max_inline_(options.max_inline),
      run_batch_(std::move(run_batch)),
      answer_late_(std::move(answer_late)),
      now_(std::move(now)),
      threads_(std::move(threads)),
      mutex_(threads_->mutex()),
      former_(options),
      running_(options.slots),
      free_(options.slots),
      forecast_(options),
      wake_(Clock::time_point::min()) {
  std::iota(free_.rbegin(), free_.rend(), size_t{0});
  {
    const std::lock_guard lock(mutex_);
    threads_->Add(this);
  }
  try {
    watch_ = std::thread([this] { Watch(); });
  } catch (...) {
    const std::lock_guard lock(mutex_);
    threads_->Remove(this);
    throw;
  }
}

BatchingQueue::BatchingQueue(const BatchingOptions& options, RunBatch run_batch,
                             AnswerLate answer_late, Now now)
    : BatchingQueue(options, std::move(run_batch), std::move(answer_late), std::move(now),
                    std::make_shared<SlotThreads>(options.slots)) {}

BatchingQueue::~BatchingQueue() { Stop(); }

Admission BatchingQueue::Submit(std::unique_ptr<Request>& request) {
  std::unique_lock lock(mutex_);
  if (stopping_) return Admission::kStopped;
  Request* const submitted = request.get();
  const bool may_run_inline = submitted->may_run_inline;
  const Admission admission = former_.Add(request, forecast_, now_());
  if (admission != Admission::kAccepted) return admission;
  if (submitted->ticket != nullptr) submitted->ticket->request = submitted;
  if (submitted->pieces != nullptr) submitted->pieces->waiting = submitted;
  const Clock::time_point deadline = submitted->deadline;
  if (may_run_inline && ShouldRunInline()) {
    WakeWatchBy(deadline);
    const Clock::time_point end = now_() + max_inline_;
    RunOne(&lock);
    // What came meanwhile, too, while there is time: to wake a thread for it takes longer.
    while (CanRun() && IsInline(end - now_())) RunOne(&lock);
    TellIfDone();
    WakeForRest();
    return Admission::kAccepted;
  }
  WakeWatchBy(deadline);
  WakeForRest();
  return Admission::kAccepted;
}

Admission BatchingQueue::RoomFor(const Request& request) const {
  const std::lock_guard lock(mutex_);
  return stopping_ ? Admission::kStopped : former_.RoomFor(request);
}

size_t BatchingQueue::SlotsFor(const Request& request) const {
  const std::lock_guard lock(mutex_);
  if (free_.size() < 2 || !former_.empty()) return 1;
  const auto work =
      forecast_.OfBatch({.requests = 1, .examples = request.num_examples, .ids = request.num_ids});
  return std::clamp<size_t>(static_cast<size_t>(work / kWorthAPiece), 1, free_.size());
}

std::chrono::nanoseconds BatchingQueue::RetryAfter(const Request& refused) const {
  const std::lock_guard lock(mutex_);
  return former_.RetryAfter(refused, forecast_, now_());
}

bool BatchingQueue::CanRun() const {
  if (free_.empty() || !former_.can_take()) return false;
  return IsIdle() || Dispatches(Question());
}

DispatchQuestion BatchingQueue::Question() const {
  const Clock::time_point now = now_();
  return {.slots = running_.size(),
          .free = free_.size(),
          .has_piece = former_.has_piece(),
          .fills_batch = former_.fills_batch(),
          .requests = former_.queued().pieces,
          .work = ForecastOfAll(),
          .deadline = former_.next_deadline(),
          .first_end = forecast_.FirstEnd(now),
          .now = now};
}

Clock::time_point BatchingQueue::LooksAgain() const {
  if (free_.empty() || IsIdle() || !former_.can_take()) return Clock::time_point::max();
  return AsksAgain(Question());
}

void BatchingQueue::WakeWatchBy(Clock::time_point time) {
  if (time >= wake_) return;
  wake_ = time;
  deadline_.notify_one();
}

bool BatchingQueue::ShouldRunInline() const {
  return IsIdle() && former_.queued().pieces == 1 && IsInline(max_inline_);
}

bool BatchingQueue::IsInline(std::chrono::nanoseconds time) const {
  const auto predicted = ForecastOfAll();
  return predicted.count() > 0 && predicted <= time;
}

std::chrono::nanoseconds BatchingQueue::ForecastOfAll() const {
  const QueueSize& queued = former_.queued();
  return forecast_.OfBatch(
      {.requests = queued.pieces, .examples = queued.examples, .ids = queued.ids});
}

void BatchingQueue::RunOne(std::unique_lock<std::mutex>* lock) {
  Due due = former_.Take(now_());
  for (Batch* part : {&due.expired, &due.abandoned}) {
    for (const auto& request : *part) Unlink(request.get());
  }
  if (due.failed != nullptr) Unlink(due.failed.get());
  const size_t slot = due.slot = free_.back();
  free_.pop_back();
  running_[slot].Begin(due.batch);
  forecast_.RunBegins(slot, SizeOf(due.batch), now_());
  WakeForRest();  // Who brought a request that is cut has woken one for all pieces.
  lock->unlock();
  run_batch_(std::move(due), this);
  lock->lock();
  free_.push_back(slot);
  forecast_.RunEnds(slot, now_());  // The next batch waits for the answers, too.
}

void BatchingQueue::WakeForRest() {
  if (CanRun()) {
    threads_->WakeOne();
  } else {
    WakeWatchBy(LooksAgain());
  }
}

void BatchingQueue::Cancel(Ticket* ticket, StatusReason why) {
  std::unique_lock lock(mutex_);
  Request* const request = ticket->request;
  if (request == nullptr) return;
  Late late = request->runs ? Late(request, why) : Late(former_.Take(*request), why);
  TellIfDone();
  lock.unlock();
  answer_late_(std::move(late));
}

std::unique_ptr<Request> BatchingQueue::Take(const RequestPieces& pieces) {
  const std::lock_guard lock(mutex_);
  if (pieces.waiting == nullptr) return nullptr;
  std::unique_ptr<Request> whole = former_.Take(*pieces.waiting);
  Unlink(whole.get());
  TellIfDone();
  return whole;
}

bool BatchingQueue::IsWanted(const Request& request) const {
  const std::lock_guard lock(mutex_);
  return request.answer && request.deadline > now_();
}

void BatchingQueue::EndRun(size_t slot) {
  const std::lock_guard lock(mutex_);
  running_[slot].End();
}

void BatchingQueue::Stop() {
  std::call_once(stopped_once_, [this] {
    {
      std::unique_lock lock(mutex_);
      stopping_ = true;
      done_.wait(lock, [this] { return IsDone(); });
      threads_->Remove(this);
      stopped_ = true;
    }
    deadline_.notify_one();
    watch_.join();
  });
}

QueueSize BatchingQueue::queued() const {
  const std::lock_guard lock(mutex_);
  return former_.queued();
}

bool BatchingQueue::RunIfAny(std::unique_lock<std::mutex>* lock) {
  if (!CanRun()) {
    WakeWatchBy(LooksAgain());
    return false;
  }
  threads_->WakeForOthers(this);
  RunOne(lock);
  TellIfDone();
  return true;
}

void BatchingQueue::Watch() {
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    const Clock::time_point now = now_();
    if (std::optional<Late> late = TakeExpired(now); late.has_value()) {
      wake_ = Clock::time_point::min();  // It looks again anyhow.
      TellIfDone();
      lock.unlock();
      answer_late_(std::move(*late));
      late.reset();
      lock.lock();
      continue;
    }
    wake_ = former_.next_deadline();
    for (RunningBatch& batch : running_) wake_ = std::min(wake_, batch.next_deadline());
    if (CanRun()) {
      threads_->WakeOne();
    } else {
      wake_ = std::min(wake_, LooksAgain());
    }
    if (wake_ < now + kLongestSleep) {
      deadline_.wait_for(lock, wake_ - now);
    } else {
      deadline_.wait_for(lock, kLongestSleep);
    }
  }
}

std::optional<Late> BatchingQueue::TakeExpired(Clock::time_point now) {
  for (RunningBatch& batch : running_) {
    if (Request* const expired = batch.FirstExpired(now); expired != nullptr) {
      return Late(expired, StatusReason::kUnstated);
    }
  }
  if (std::unique_ptr<Request> expired = former_.TakeExpired(now); expired != nullptr) {
    return Late(std::move(expired), StatusReason::kUnstated);
  }
  return {};
}

}  // namespace embershard
