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

Admission BatchFormer::Add(std::unique_ptr<Request>& request, Clock::time_point now) {
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
  waiting_.push_back(std::move(request));
  ++queued_.requests;
  queued_.examples += size.examples;
  queued_.ids += size.ids;
  queued_.bytes += size.bytes;
  return Admission::kAccepted;
}

Due BatchFormer::Take(Clock::time_point now) {
  Due due;
  try {
    QueueSize room;
    room.examples = options_.merge_examples;
    room.ids = options_.max_batch_ids;
    while (!waiting_.empty() && TakeOldest(now, &room, &due)) {
    }
  } catch (const std::exception&) {
    // What has been taken is due, and the rest is for the next call. Where nothing has,
    // the oldest goes: the next call might fail at it again, and so for ever.
    if (due.batch.empty() && due.expired.empty() && due.abandoned.empty()) {
      due.failed = std::move(waiting_.front());
      Pop(SizeOf(*due.failed));
    }
  }
  return due;
}

bool BatchFormer::TakeOldest(Clock::time_point now, QueueSize* room, Due* due) {
  std::unique_ptr<Request>& oldest = waiting_.front();
  const QueueSize size = SizeOf(*oldest);
  Batch* part = IsExpired(*oldest, now) ? &due->expired : &due->batch;
  if (part == &due->batch) {
    // One that does not fit ends the batch: none is overtaken for ever.
    const bool fits = size.examples <= room->examples && size.ids <= room->ids;
    if (!fits && !due->batch.empty()) return false;
    if (IsAbandoned(*oldest)) part = &due->abandoned;
  }
  part->push_back(std::move(oldest));
  Pop(size);
  if (part == &due->batch) {
    room->examples -= std::min(room->examples, size.examples);
    room->ids -= size.ids;
  }
  return true;
}

void BatchFormer::Pop(const QueueSize& size) {
  waiting_.pop_front();
  --queued_.requests;
  queued_.examples -= size.examples;
  queued_.ids -= size.ids;
  queued_.bytes -= size.bytes;
}

}  // namespace embershard
