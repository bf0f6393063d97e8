#include "grpc/predict/predict_stream.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "engine/engine.h"
#include "grpc/status_map.h"

namespace embershard::rpc {

// One request of the stream, from its message to its answer.
struct PredictStream::Entry {
  std::shared_ptr<WireMessages> messages;
  Status read;       // Why the message is no request.
  size_t bytes = 0;  // Of the message.
  Exchange exchange;
  Entries::iterator place;  // In live_.
  bool taken_back = false;  // Guarded by the stream's mutex_.
};

namespace {

// Answers that gRPC is asked to gather: those behind them wait no longer for the line.
constexpr size_t kGatheredMax = 32;

grpc::Status HowItEnds(bool cancelled, bool closed) {
  if (cancelled) return grpc::Status::CANCELLED;
  return closed ? ToGrpcStatus(ShuttingDown()) : grpc::Status::OK;
}

}  // namespace

PredictStream::PredictStream(const PredictHandler* handler, MakeMessages make_messages,
                             grpc::CallbackServerContext* context,
                             const PredictStreamOptions& options, std::atomic<size_t>* held_by_all,
                             std::function<void(PredictStream*)> done)
    : handler_(handler),
      make_messages_(make_messages),
      context_(context),
      options_(options),
      held_by_all_(held_by_all),
      done_(std::move(done)) {}

void PredictStream::Start() {
  {
    MutexLock lock(mutex_);
    ++busy_;
  }
  Advance();
}

void PredictStream::Close() {
  {
    MutexLock lock(mutex_);
    closed_ = true;
    ++busy_;
  }
  Advance();
}

void PredictStream::CancelIfStalled(Clock::time_point now) {
  {
    MutexLock lock(mutex_);
    if (finished_ || !writing_ || now - write_start_ < options_.stalled) return;
    ++busy_;
  }
  context_->TryCancel();
  Advance();
}

void PredictStream::OnReadDone(bool ok) {
  Entries taken;
  if (ok) Parse(&taken);
  MutexLock lock(mutex_);
  reading_ = false;
  if (finished_) return;  // Closed, and it came too late to be answered.
  ++busy_;
  if (taken.empty()) {
    read_all_ = true;
    lock.Unlock();
    return Advance();
  }
  const std::shared_ptr<Entry> entry = taken.front();
  handler_->Arrive(&entry->exchange, Deadline(*entry->messages));
  entry->exchange.alone = unsent_ == 0;
  entry->place = taken.begin();
  live_.splice(live_.end(), taken);
  Hold(entry->bytes);
  ++unsent_;
  const bool in_time = !closed_;
  lock.Unlock();
  if (!in_time) {
    handler_->Refuse(&entry->exchange, ShuttingDown());
  } else if (!entry->read.ok()) {
    handler_->Refuse(&entry->exchange, entry->read);
  } else {
    handler_->Handle(&entry->exchange, entry);
  }
  lock.Lock();
  const bool cancelled = cancelled_;
  lock.Unlock();
  // OnCancel() may have come before the request was in the queue.
  if (cancelled) handler_->Cancel(&entry->exchange);
  Advance();
}

void PredictStream::Parse(Entries* taken) {
  try {
    auto entry = std::make_shared<Entry>();
    entry->exchange.context = context_;
    entry->messages = make_messages_();
    entry->exchange.messages = entry->messages.get();
    entry->exchange.send = [this, entry = entry.get()](const Status& status) {
      Answer(entry, status);
    };
    entry->bytes = incoming_.Length();
    entry->read = entry->messages->Read(&incoming_);
    taken->push_back(std::move(entry));
  } catch (const std::exception&) {  // Memory has run out, so none is left for an answer.
    context_->TryCancel();
  }
}

Clock::time_point PredictStream::Deadline(const WireMessages& messages) const {
  const Clock::time_point now = Clock::now();
  const Clock::time_point of_call = PredictHandler::DeadlineOf(*context_, now);
  // A call of many requests may be a long one.
  return messages.timeout().count() > 0 ? of_call
                                        : std::min(of_call, now + options_.default_timeout);
}

void PredictStream::Answer(Entry* entry, const Status& status) {
  handler_->Record(entry->exchange);
  std::list<grpc::ByteBuffer> answer;
  try {
    answer.push_back(Serialized(entry, status));
  } catch (const std::exception&) {  // Memory has run out, so none is left for an answer.
    context_->TryCancel();
  }
  Entries last;  // Ends behind the lock.
  {
    MutexLock lock(mutex_);
    last.splice(last.end(), live_, entry->place);
    LetGo(entry->bytes);
    if (answer.empty() || cancelled_) {
      --unsent_;
    } else {
      Hold(answer.front().Length());
      ready_.splice(ready_.end(), answer);
    }
    ++busy_;
  }
  Advance();
}

grpc::ByteBuffer PredictStream::Serialized(Entry* entry, const Status& status) const {
  if (!status.ok()) {
    const bool again = status.code() == StatusCode::kResourceExhausted;
    entry->messages->Fail(ToGrpcStatus(status),
                          again ? RetryPushback(entry->exchange, options_.retry_pushback)
                                : std::chrono::milliseconds(0));
  }
  return entry->messages->Write();
}

void PredictStream::OnWriteDone(bool ok) {
  {
    MutexLock lock(mutex_);
    writing_ = false;
    LetGo(outgoing_.Length());
    outgoing_.Clear();
    --unsent_;
    if (!ok) {
      cancelled_ = true;  // OnCancel() comes, too.
      DropReady();
    }
    ++busy_;
  }
  Advance();
}

void PredictStream::OnCancel() {
  MutexLock lock(mutex_);
  if (finished_) return;
  cancelled_ = true;
  DropReady();
  ++busy_;
  while (true) {
    const auto next = std::find_if(live_.begin(), live_.end(),
                                   [](const auto& entry) { return !entry->taken_back; });
    if (next == live_.end()) break;
    const std::shared_ptr<Entry> entry = *next;
    entry->taken_back = true;
    lock.Unlock();
    handler_->Cancel(&entry->exchange);
    lock.Lock();
  }
  lock.Unlock();
  Advance();
}

void PredictStream::Hold(size_t bytes) {
  held_bytes_ += bytes;
  *held_by_all_ += bytes;
}

void PredictStream::LetGo(size_t bytes) {
  held_bytes_ -= bytes;
  *held_by_all_ -= bytes;
}

void PredictStream::DropReady() {
  for (const grpc::ByteBuffer& answer : ready_) LetGo(answer.Length());
  unsent_ -= ready_.size();
  ready_.clear();
}

bool PredictStream::MayRead() const {
  if (reading_ || read_all_ || closed_ || cancelled_) return false;
  if (unsent_ == 0) return true;
  return unsent_ < options_.in_flight && held_bytes_ < options_.held_bytes &&
         *held_by_all_ < options_.held_bytes_in_all;
}

bool PredictStream::IsOver() const {
  return (read_all_ || closed_ || cancelled_) && unsent_ == 0 && busy_ == 0 && !writing_ &&
         !finished_;
}

void PredictStream::Advance() {
  MutexLock lock(mutex_);
  while (true) {
    const bool reads = MayRead();
    const bool writes = !writing_ && !ready_.empty();
    if (!reads && !writes) break;
    grpc::WriteOptions how;
    if (writes) {
      outgoing_ = std::move(ready_.front());
      ready_.pop_front();
      writing_ = true;
      write_start_ = Clock::now();
      gathered_ = ready_.empty() || gathered_ + 1 == kGatheredMax ? 0 : gathered_ + 1;
      if (gathered_ > 0) how.set_buffer_hint();
    }
    reading_ = reading_ || reads;
    lock.Unlock();
    if (writes) StartWrite(&outgoing_, how);
    if (reads) StartRead(&incoming_);
    lock.Lock();
  }
  --busy_;
  if (!IsOver()) return;
  finished_ = true;
  const grpc::Status status = HowItEnds(cancelled_, closed_);
  lock.Unlock();
  Finish(status);
}

}  // namespace embershard::rpc
