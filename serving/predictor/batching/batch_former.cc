#include "batching/batch_former.h"

#include <algorithm>
#include <cassert>
#include <exception>
#include <utility>

#include "batching/request_pieces.h"

namespace embershard {
namespace {

// Of what waits of it.
QueueSize SizeOf(const Request& request) {
  const BatchSize left = SizeLeft(request);
  // One without examples is computed as well: it takes the room of one. One whose pieces have all
  // left takes none.
  return {.examples = std::max<size_t>(left.examples, left.requests > 0 ? 1 : 0),
          .ids = left.ids,
          .bytes = request.held_bytes,
          .requests = 1,
          .pieces = left.requests};
}

BatchSize WorkOf(const QueueSize& size) {
  return {.requests = size.pieces, .examples = size.examples, .ids = size.ids};
}

void AddTo(BatchSize* sum, const BatchSize& size) {
  sum->requests += size.requests;
  sum->examples += size.examples;
  sum->ids += size.ids;
}

void TakeFrom(BatchSize* sum, const BatchSize& size) {
  sum->requests -= size.requests;
  sum->examples -= size.examples;
  sum->ids -= size.ids;
}

// A forecast errs to both sides, and the answer has its way to go: a quarter more. With a part of
// the slots the same takes as many times as long.
Clock::time_point Latest(Clock::time_point foreseen, Clock::time_point now, double share) {
  const std::chrono::duration<double, std::nano> time = foreseen - now;
  return now + std::chrono::duration_cast<Clock::duration>(time * 1.25 / share);
}

void AddTo(QueueSize* sum, const QueueSize& size) {
  sum->examples += size.examples;
  sum->ids += size.ids;
  sum->bytes += size.bytes;
  sum->requests += size.requests;
  sum->pieces += size.pieces;
}

void TakeFrom(QueueSize* sum, const QueueSize& size) {
  sum->examples -= size.examples;
  sum->ids -= size.ids;
  sum->bytes -= size.bytes;
  sum->requests -= size.requests;
  sum->pieces -= size.pieces;
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
  if (!next && EndOf(*request, forecast, now, share) > request->deadline) return Admission::kNoTime;
  const Request& added = *request;
  LineOf(added).Add(request);
  Count(added);
  return Admission::kAccepted;
}

Admission BatchFormer::RoomFor(const Request& request) const {
  const QueueSize size = SizeOf(request);
  if (size.examples > options_.max_queued_examples || size.ids > options_.max_queued_ids ||
      size.bytes > options_.max_queued_bytes) {
    return Admission::kTooLarge;
  }
  return HasRoom(request, size) ? Admission::kAccepted : Admission::kQueueFull;
}

WaitingLine& BatchFormer::LineOf(const Request& request) {
  if (request.priority == Priority::kBatch) return batch_;
  return request.pieces == nullptr ? interactive_ : large_;
}

bool BatchFormer::HasRoom(const Request& request, const QueueSize& size) const {
  if (size.examples > options_.max_queued_examples - queued_.examples ||
      size.ids > options_.max_queued_ids - queued_.ids ||
      size.bytes > options_.max_queued_bytes - queued_.bytes) {
    return false;
  }
  if (request.priority == Priority::kInteractive || batch_.empty()) return true;
  return queued_batch_.examples + size.examples <= options_.max_queued_examples / 2 &&
         queued_batch_.ids + size.ids <= options_.max_queued_ids / 2 &&
         queued_batch_.bytes + size.bytes <= options_.max_queued_bytes / 2;
}

Clock::time_point BatchFormer::EndOf(const Request& request, const Forecast& forecast,
                                     Clock::time_point now, double share) const {
  const bool is_batch = request.priority == Priority::kBatch;
  BatchSize work = WorkOf(queued_);
  AddTo(&work, SizeLeft(request));
  if (is_batch) {
    TakeFrom(&work, batch_.DueAfter(request.deadline));
  } else {
    TakeFrom(&work, interactive_.DueAfter(request.deadline));
    TakeFrom(&work, large_.DueAfter(request.deadline));
    // As much as it has may come between its pieces.
    if (request.pieces != nullptr) AddTo(&work, SizeLeft(request));
  }
  if (is_batch || queued_batch_.examples == 0) return Latest(forecast.EndOf(work, now), now, share);
  const BatchSize others = WorkOf(queued_batch_);
  TakeFrom(&work, others);
  // Of the others those that fill its batches up, and those whose turn comes meanwhile.
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
  if (end > refused.deadline) return end - refused.deadline;  // It will state as much time again.
  const QueueSize size = SizeOf(refused);
  return forecast.EndOf(WorkOf(size), now) - now;
}

Due BatchFormer::Take(Clock::time_point now, size_t most_examples) {
  Due due;
  QueueSize room;
  room.examples = std::min(options_.merge_examples, most_examples);
  room.ids = options_.max_batch_ids;
  WaitingLine* first = &interactive_;
  WaitingLine* second = &batch_;
  if (IsTurnOfBatch()) std::swap(first, second);
  WaitingLine* const large = IsTurnOfLarge() ? &large_ : nullptr;
  bool has_piece = false;
  try {
    // One piece: what was cut to run in several slots is not merged again.
    while (large != nullptr && due.batch.empty() && TakeNext(large, now, &room, &due)) continue;
    has_piece = !due.batch.empty();
    bool fits = true;
    while (fits && first->next() != nullptr) fits = TakeNext(first, now, &room, &due);
    while (fits && TakeNext(second, now, &room, &due)) continue;
  } catch (const std::exception&) {
    // What has been taken is due, and the rest is for the next call. Where nothing has,
    // the first goes: the next call might fail at it again, and so for ever.
    if (due.batch.empty() && due.expired.empty() && due.abandoned.empty()) {
      WaitingLine* const rest = first->next() != nullptr ? first : second;
      WaitingLine* const line = large != nullptr ? large : rest;
      due.failed = line->Take(*line->next());
      Uncount(*due.failed);
    }
  }
  // What came of each line is in order.
  if (!std::is_sorted(due.batch.begin(), due.batch.end(), IsDueBefore)) {
    std::stable_sort(due.batch.begin(), due.batch.end(), IsDueBefore);
  }
  if (!due.batch.empty()) after_large_ = has_piece;
  CountPassedOver(due.batch);
  return due;
}

bool BatchFormer::can_take() const {
  return !interactive_.empty() || large_.next() != nullptr || batch_.next() != nullptr;
}

bool BatchFormer::IsTurnOfBatch() const {
  return passed_over_ >= kPassedOver && batch_.next() != nullptr;
}

bool BatchFormer::IsTurnOfLarge() const {
  const Request* const large = large_.next();
  if (large == nullptr || IsTurnOfBatch()) return false;
  if (interactive_.empty()) return true;
  return !after_large_ && large->deadline <= interactive_.first().deadline;
}

void BatchFormer::CountPassedOver(const Batch& batch) {
  const bool has_one = std::any_of(batch.begin(), batch.end(), [](const auto& request) {
    return request->priority == Priority::kBatch;
  });
  if (batch_.empty() || has_one) {
    passed_over_ = 0;
  } else if (!batch.empty()) {
    ++passed_over_;
  }
}

bool BatchFormer::TakeNext(WaitingLine* line, Clock::time_point now, QueueSize* room, Due* due) {
  const Request* const next = line->next();
  if (next == nullptr) return false;
  const RequestPieces* const pieces = next->pieces.get();
  Batch* part = IsExpired(*next, now) ? &due->expired : &due->batch;
  QueueSize size;
  if (part == &due->batch) {
    size = SizeOf(pieces != nullptr ? pieces->next() : *next);
    // One that does not fit ends the batch: none is overtaken for ever.
    const bool fits = size.examples <= room->examples && size.ids <= room->ids;
    if (!fits && !due->batch.empty()) return false;
    if (IsAbandoned(*next)) part = &due->abandoned;
  }
  part->emplace_back();  // What may fail comes first.
  Uncount(*next);
  if (pieces != nullptr && part == &due->batch) {
    part->back() = line->TakePiece(*next);
    Count(*next);
  } else {
    part->back() = line->Take(*next);
  }
  if (part == &due->batch) {
    room->examples -= std::min(room->examples, size.examples);
    room->ids -= std::min(room->ids, size.ids);
  }
  return true;
}

std::unique_ptr<Request> BatchFormer::TakeExpired(Clock::time_point now) {
  for (WaitingLine* line : {&interactive_, &large_, &batch_}) {
    if (line->empty() || !IsExpired(line->first(), now)) continue;
    std::unique_ptr<Request> expired = line->TakeFirst();
    Uncount(*expired);
    return expired;
  }
  return nullptr;
}

std::unique_ptr<Request> BatchFormer::Take(const Request& request) {
  Uncount(request);
  return LineOf(request).Take(request);
}

Clock::time_point BatchFormer::next_deadline() const {
  Clock::time_point next = Clock::time_point::max();
  for (const WaitingLine* line : {&interactive_, &large_, &batch_}) {
    if (!line->empty()) next = std::min(next, line->first().deadline);
  }
  return next;
}

void BatchFormer::Count(const Request& request) {
  const QueueSize size = SizeOf(request);
  AddTo(&queued_, size);
  if (request.priority == Priority::kBatch) AddTo(&queued_batch_, size);
}

void BatchFormer::Uncount(const Request& request) {
  const QueueSize size = SizeOf(request);
  TakeFrom(&queued_, size);
  if (request.priority == Priority::kBatch) TakeFrom(&queued_batch_, size);
}

}  // namespace embershard
