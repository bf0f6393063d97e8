#include "batching/batch_former.h"

#include <algorithm>
#include <cassert>
#include <exception>
#include <utility>

#include "batching/split_request.h"

namespace embershard {
namespace {

// Size of the part that no batch has taken yet.
QueueSize SizeOf(const Request& request) {
  BatchSize left = SizeLeft(request);
  // A request without examples runs as well and counts as one example. A split request whose chunks
  // have all left counts as none.
  if (left.requests > 0) left.examples = std::max<uint64_t>(left.examples, 1);
  return {.work = left, .bytes = request.held_bytes, .requests = 1};
}

// Adds a quarter for errors of the forecast and for sending the answer. With a share of the slots
// the work takes 1 / share as long.
Clock::time_point Latest(Clock::time_point foreseen, Clock::time_point now, double share) {
  const std::chrono::duration<double, std::nano> time = foreseen - now;
  return now + std::chrono::duration_cast<Clock::duration>(time * 1.25 / share);
}

bool IsExpired(const Request& request, Clock::time_point now) { return request.deadline <= now; }

bool IsDueBefore(const std::unique_ptr<Request>& one, const std::unique_ptr<Request>& other) {
  return one->deadline < other->deadline;
}

bool IsAbandoned(const Request& request) { return request.abandoned && request.abandoned(); }

}  // namespace

BatchFormer::BatchFormer(const BatchingOptions& options) : options_(options) {
  assert(options.max_batch_examples > 0 &&
         options.max_batch_examples <= options.max_queued_examples);
  assert(options.merge_examples > 0 && options.merge_examples <= options.max_batch_examples);
  assert(options.max_batch_ids > 0 && options.max_batch_ids <= options.max_queued_ids);
  assert(options.max_queued_bytes > 0);
}

Admission BatchFormer::Add(std::unique_ptr<Request>& request, const Forecast& forecast,
                           Clock::time_point now, double share) {
  if (const Admission room = RoomFor(*request); room != Admission::kAccepted) return room;
  if (IsExpired(*request, now)) return Admission::kExpired;
  const bool next = empty() && !forecast.is_full();
  if (!next && EndOf(*request, forecast, now, share) > request->deadline) {
    return Admission::kDeadlineInfeasible;
  }
  const Request& added = *request;
  QueueOf(added).Add(request);
  Count(added);
  return Admission::kAccepted;
}

Admission BatchFormer::RoomFor(const Request& request) const {
  const QueueSize size = SizeOf(request);
  if (size.work.examples > options_.max_queued_examples ||
      size.work.ids > options_.max_queued_ids || size.bytes > options_.max_queued_bytes) {
    return Admission::kTooLarge;
  }
  return HasRoom(request, size) ? Admission::kAccepted : Admission::kQueueFull;
}

RequestQueue& BatchFormer::QueueOf(const Request& request) {
  if (request.priority == Priority::kBackground) return background_;
  return request.split == nullptr ? interactive_ : large_;
}

bool BatchFormer::HasRoom(const Request& request, const QueueSize& size) const {
  if (size.work.examples > options_.max_queued_examples - queued_.work.examples ||
      size.work.ids > options_.max_queued_ids - queued_.work.ids ||
      size.bytes > options_.max_queued_bytes - queued_.bytes) {
    return false;
  }
  if (request.priority == Priority::kInteractive || background_.empty()) return true;
  return queued_background_.work.examples + size.work.examples <=
             options_.max_queued_examples / 2 &&
         queued_background_.work.ids + size.work.ids <= options_.max_queued_ids / 2 &&
         queued_background_.bytes + size.bytes <= options_.max_queued_bytes / 2;
}

Clock::time_point BatchFormer::EndOf(const Request& request, const Forecast& forecast,
                                     Clock::time_point now, double share) const {
  const bool is_background = request.priority == Priority::kBackground;
  BatchSize work = queued_.work;
  work += SizeLeft(request);
  if (is_background) {
    work -= background_.DueAfter(request.deadline);
  } else {
    work -= interactive_.DueAfter(request.deadline);
    work -= large_.DueAfter(request.deadline);
    // Other requests may run between its chunks, up to as much work as its own.
    if (request.split != nullptr) work += SizeLeft(request);
  }
  if (is_background || queued_background_.work.examples == 0) {
    return Latest(forecast.EndOf(work, now), now, share);
  }
  const BatchSize others = queued_background_.work;
  work -= others;
  // Add only the kBackground requests that fill up the batches or have their turn among them.
  const uint64_t batches = (std::max(work.examples, uint64_t{1}) - 1) / options_.merge_examples + 1;
  const uint64_t turns = (static_cast<uint64_t>(passed_over_) + batches) / (kPassedOver + 1);
  const uint64_t room = (batches + turns) * options_.merge_examples - work.examples;
  const uint64_t added = std::min<uint64_t>(others.examples, room);
  work.requests += others.requests * added / others.examples;
  work.examples += added;
  work.ids += others.ids * added / others.examples;
  return Latest(forecast.EndOf(work, now), now, share);
}

std::chrono::nanoseconds BatchFormer::RetryAfter(const Request& refused, const Forecast& forecast,
                                                 Clock::time_point now, double share) const {
  const Clock::time_point end = EndOf(refused, forecast, now, share);
  // The client will probably retry with the same timeout.
  if (end > refused.deadline) return end - refused.deadline;
  return forecast.EndOf(SizeOf(refused).work, now) - now;
}

Due BatchFormer::Take(Clock::time_point now, size_t most_examples) {
  Due due;
  BatchSize room = {.examples = std::min(options_.merge_examples, most_examples),
                    .ids = options_.max_batch_ids};
  RequestQueue* first = &interactive_;
  RequestQueue* second = &background_;
  if (IsTurnOfBackground()) std::swap(first, second);
  RequestQueue* const large = IsTurnOfLarge() ? &large_ : nullptr;
  bool has_chunk = false;
  try {
    // Take one chunk only: the request was split so that its chunks run in several slots.
    while (large != nullptr && due.batch.empty() && TakeNext(large, now, &room, &due)) continue;
    has_chunk = !due.batch.empty();
    bool fits = true;
    while (fits && first->next() != nullptr) fits = TakeNext(first, now, &room, &due);
    while (fits && TakeNext(second, now, &room, &due)) continue;
  } catch (const std::exception&) {
    // Memory ran out. Return what was taken; if nothing was, give up the first request, since the
    // next call could fail at it again, forever.
    if (due.batch.empty() && due.expired.empty() && due.abandoned.empty()) {
      RequestQueue* const rest = first->next() != nullptr ? first : second;
      RequestQueue* const queue = large != nullptr ? large : rest;
      due.failed = queue->Take(*queue->next());
      Uncount(*due.failed);
    }
  }
  // Each queue was in order, the two together may not be.
  if (!std::is_sorted(due.batch.begin(), due.batch.end(), IsDueBefore)) {
    std::stable_sort(due.batch.begin(), due.batch.end(), IsDueBefore);
  }
  if (!due.batch.empty()) after_large_ = has_chunk;
  CountPassedOver(due.batch);
  return due;
}

bool BatchFormer::can_take() const {
  return !interactive_.empty() || large_.next() != nullptr || background_.next() != nullptr;
}

bool BatchFormer::IsTurnOfBackground() const {
  return passed_over_ >= kPassedOver && background_.next() != nullptr;
}

bool BatchFormer::IsTurnOfLarge() const {
  const Request* const large = large_.next();
  if (large == nullptr || IsTurnOfBackground()) return false;
  if (interactive_.empty()) return true;
  return !after_large_ && large->deadline <= interactive_.first().deadline;
}

void BatchFormer::CountPassedOver(const Batch& batch) {
  const bool has_one = std::any_of(batch.begin(), batch.end(), [](const auto& request) {
    return request->priority == Priority::kBackground;
  });
  if (background_.empty() || has_one) {
    passed_over_ = 0;
  } else if (!batch.empty()) {
    ++passed_over_;
  }
}

bool BatchFormer::TakeNext(RequestQueue* queue, Clock::time_point now, BatchSize* room, Due* due) {
  const Request* const next = queue->next();
  if (next == nullptr) return false;
  const SplitRequest* const split = next->split.get();
  Batch* part = IsExpired(*next, now) ? &due->expired : &due->batch;
  BatchSize size;
  if (part == &due->batch) {
    size = SizeOf(split != nullptr ? split->next() : *next).work;
    // A request that does not fit ends the batch, so that smaller ones cannot overtake it forever.
    const bool fits = size.examples <= room->examples && size.ids <= room->ids;
    if (!fits && !due->batch.empty()) return false;
    if (IsAbandoned(*next)) part = &due->abandoned;
  }
  part->emplace_back();  // May throw, so it comes before any change.
  Uncount(*next);
  if (split != nullptr && part == &due->batch) {
    part->back() = queue->TakeChunk(*next);
    Count(*next);
  } else {
    part->back() = queue->Take(*next);
  }
  if (part == &due->batch) {
    room->examples -= std::min(room->examples, size.examples);
    room->ids -= std::min(room->ids, size.ids);
  }
  return true;
}

std::unique_ptr<Request> BatchFormer::TakeExpired(Clock::time_point now) {
  for (RequestQueue* queue : {&interactive_, &large_, &background_}) {
    if (queue->empty() || !IsExpired(queue->first(), now)) continue;
    std::unique_ptr<Request> expired = queue->TakeFirst();
    Uncount(*expired);
    return expired;
  }
  return nullptr;
}

std::unique_ptr<Request> BatchFormer::Take(const Request& request) {
  Uncount(request);
  return QueueOf(request).Take(request);
}

Clock::time_point BatchFormer::next_deadline() const {
  Clock::time_point next = Clock::time_point::max();
  for (const RequestQueue* queue : {&interactive_, &large_, &background_}) {
    if (!queue->empty()) next = std::min(next, queue->first().deadline);
  }
  return next;
}

void BatchFormer::Count(const Request& request) {
  const QueueSize size = SizeOf(request);
  queued_ += size;
  if (request.priority == Priority::kBackground) queued_background_ += size;
}

void BatchFormer::Uncount(const Request& request) {
  const QueueSize size = SizeOf(request);
  queued_ -= size;
  if (request.priority == Priority::kBackground) queued_background_ -= size;
}

}  // namespace embershard
