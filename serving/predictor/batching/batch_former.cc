#include "batching/batch_former.h"

#include <algorithm>
#include <cassert>
#include <exception>
#include <utility>

namespace embershard {
namespace {

QueueSize SizeOf(const Request& request) {
  // One without examples is computed as well: it takes the room of one.
  return {.examples = std::max(request.num_examples, 1U),
          .ids = request.num_ids,
          .bytes = request.held_bytes,
          .requests = 1};
}

bool IsExpired(const Request& request, Clock::time_point now) { return request.deadline <= now; }

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
                           Clock::time_point now) {
  const QueueSize size = SizeOf(*request);
  if (size.examples > options_.max_batch_examples || size.ids > options_.max_batch_ids ||
      size.bytes > options_.max_queued_bytes) {
    return Admission::kTooLarge;
  }
  if (IsExpired(*request, now)) return Admission::kExpired;
  if (size.examples > options_.max_queued_examples - queued_.examples ||
      size.ids > options_.max_queued_ids - queued_.ids ||
      size.bytes > options_.max_queued_bytes - queued_.bytes) {
    return Admission::kQueueFull;
  }
  if (!HasTime(*request, forecast, now)) return Admission::kNoTime;
  waiting_.Add(request);
  ++queued_.requests;
  queued_.examples += size.examples;
  queued_.ids += size.ids;
  queued_.bytes += size.bytes;
  return Admission::kAccepted;
}

bool BatchFormer::HasTime(const Request& request, const Forecast& forecast,
                          Clock::time_point now) const {
  if (waiting_.empty() && !forecast.runs()) return true;
  const BatchSize after = waiting_.DueAfter(request.deadline);
  const BatchSize work = {.requests = queued_.requests - after.requests + 1,
                          .examples = queued_.examples - after.examples + request.num_examples,
                          .ids = queued_.ids - after.ids + request.num_ids};
  return forecast.EndOf(work, now) <= request.deadline;
}

Due BatchFormer::Take(Clock::time_point now) {
  Due due;
  try {
    QueueSize room;
    room.examples = options_.merge_examples;
    room.ids = options_.max_batch_ids;
    while (!waiting_.empty() && TakeFirst(now, &room, &due)) {
    }
  } catch (const std::exception&) {
    // What has been taken is due, and the rest is for the next call. Where nothing has,
    // the first goes: the next call might fail at it again, and so for ever.
    if (due.batch.empty() && due.expired.empty() && due.abandoned.empty()) {
      due.failed = waiting_.TakeFirst();
      Uncount(*due.failed);
    }
  }
  return due;
}

bool BatchFormer::TakeFirst(Clock::time_point now, QueueSize* room, Due* due) {
  const Request& first = waiting_.first();
  const QueueSize size = SizeOf(first);
  Batch* part = IsExpired(first, now) ? &due->expired : &due->batch;
  if (part == &due->batch) {
    // One that does not fit ends the batch: none is overtaken for ever.
    const bool fits = size.examples <= room->examples && size.ids <= room->ids;
    if (!fits && !due->batch.empty()) return false;
    if (IsAbandoned(first)) part = &due->abandoned;
  }
  part->emplace_back();  // What may fail comes first.
  part->back() = waiting_.TakeFirst();
  Uncount(*part->back());
  if (part == &due->batch) {
    room->examples -= std::min(room->examples, size.examples);
    room->ids -= size.ids;
  }
  return true;
}

std::unique_ptr<Request> BatchFormer::TakeExpired(Clock::time_point now) {
  if (waiting_.empty() || !IsExpired(waiting_.first(), now)) return nullptr;
  std::unique_ptr<Request> expired = waiting_.TakeFirst();
  Uncount(*expired);
  return expired;
}

std::unique_ptr<Request> BatchFormer::Take(const Request& request) {
  Uncount(request);
  return waiting_.Take(request);
}

Clock::time_point BatchFormer::next_deadline() const {
  return waiting_.empty() ? Clock::time_point::max() : waiting_.first().deadline;
}

void BatchFormer::Uncount(const Request& request) {
  const QueueSize size = SizeOf(request);
  --queued_.requests;
  queued_.examples -= size.examples;
  queued_.ids -= size.ids;
  queued_.bytes -= size.bytes;
}

}  // namespace embershard
