// A call with a stream of prediction requests, in any protocol. Answers are sent as they get ready,
// in any order.

#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "engine/engine.h"
#include "engine/request_completer.h"
#include "grpc/predict/predict_handler.h"
#include "grpc/predict/wire_messages.h"
#include "grpc/server.h"
#include "grpc/status_map.h"

namespace embershard::rpc {

// Reads one message at a time, while fewer than stream_in_flight requests are without a sent answer
// and these do not hold too many bytes. Sends one answer at a time; while more are ready, gRPC is
// asked to gather them into one write.
//
//   ends with       when
//   OK              the client half-closed, and all requests were answered
//   UNAVAILABLE     Close() was called, and all requests were answered
//   CANCELLED       the client cancelled, or does not read answers
//
// Callbacks of gRPC, answers of the engine, Close() and CancelIfStalled() may come on any thread.
class PredictStream final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // `handler`, `options` and `held_by_all` (bytes held by all streams) must outlive the stream.
  // `done` is called when gRPC has finished with the stream; it must not be destroyed earlier.
  PredictStream(const PredictHandler* handler, MakeMessages make_messages,
                grpc::CallbackServerContext* context, const ServerOptions& options,
                std::atomic<size_t>* held_by_all, std::function<void(PredictStream*)> done)
      : handler_(handler),
        make_messages_(make_messages),
        context_(context),
        options_(options),
        held_by_all_(held_by_all),
        done_(std::move(done)) {}

  // Sends the headers, for which some clients wait. REQUIRES: called once.
  void Start() {
    StartSendInitialMetadata();
    {
      MutexLock lock(mutex_);
      ++busy_;
    }
    Advance();
  }

  // Stops reading. The stream ends when all requests are answered.
  void Close() {
    {
      MutexLock lock(mutex_);
      closed_ = true;
      ++busy_;
    }
    Advance();
  }

  // Cancels the stream if its client has not read an answer for too long.
  void CancelIfStalled(Clock::time_point now) {
    {
      MutexLock lock(mutex_);
      if (finished_ || !writing_ || now - write_start_ < options_.stream_stalled) return;
      ++busy_;
    }
    context_->TryCancel();
    Advance();
  }

  void OnReadDone(bool ok) override {
    Entries taken;
    if (ok) Parse(&taken);
    MutexLock lock(mutex_);
    reading_ = false;
    if (finished_) return;  // The stream was closed; the message came too late.
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
    // OnCancel() may have run before the request was queued.
    if (cancelled) handler_->Cancel(&entry->exchange);
    Advance();
  }

  void OnWriteDone(bool ok) override {
    {
      MutexLock lock(mutex_);
      writing_ = false;
      Release(outgoing_.Length());
      outgoing_.Clear();
      --unsent_;
      if (!ok) {
        cancelled_ = true;  // OnCancel() follows.
        DropReady();
      }
      ++busy_;
    }
    Advance();
  }

  void OnCancel() override {
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

  void OnDone() override { done_(this); }

 private:
  struct Entry;
  using Entries = std::list<std::shared_ptr<Entry>>;  // Splicing allocates no memory.
  struct Entry {
    std::shared_ptr<WireMessages> messages;
    Status read;       // Result of reading the message.
    size_t bytes = 0;  // Size of the message.
    Exchange exchange;
    Entries::iterator place;  // Its place in live_.
    bool taken_back = false;  // Guarded by the stream's mutex_.
  };

  static constexpr size_t kHeldBytes = 16 << 20;        // Unanswered messages and unsent answers.
  static constexpr size_t kHeldBytesInAll = 256 << 20;  // The same for all streams of a service.
  // Most answers that gRPC gathers into one write.
  static constexpr size_t kGatheredMax = 32;

  void Parse(Entries* taken) {
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

  Clock::time_point Deadline(const WireMessages& messages) const {
    const Clock::time_point now = Clock::now();
    const Clock::time_point of_call = PredictHandler::DeadlineOf(*context_, now);
    // The call's deadline does not limit a request with a timeout of its own: the call may be long.
    return messages.timeout().count() > 0 ? of_call
                                          : std::min(of_call, now + options_.default_timeout);
  }

  void Answer(Entry* entry, const Status& status) {
    handler_->Record(entry->exchange);
    std::list<grpc::ByteBuffer> answer;
    try {
      answer.push_back(Serialized(entry, status));
    } catch (const std::exception&) {  // Memory has run out, so none is left for an answer.
      context_->TryCancel();
    }
    Entries last;  // Destroyed after the lock is released.
    {
      MutexLock lock(mutex_);
      last.splice(last.end(), live_, entry->place);
      Release(entry->bytes);
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

  grpc::ByteBuffer Serialized(Entry* entry, const Status& status) const {
    if (!status.ok()) {
      const bool again = status.code() == StatusCode::kResourceExhausted;
      entry->messages->Fail(ToGrpcStatus(status),
                            again ? RetryPushback(entry->exchange, options_.retry_pushback)
                                  : std::chrono::milliseconds(0));
    }
    return entry->messages->Write();
  }

  void Hold(size_t bytes) REQUIRES(mutex_) {
    held_bytes_ += bytes;
    *held_by_all_ += bytes;
  }

  void Release(size_t bytes) REQUIRES(mutex_) {
    held_bytes_ -= bytes;
    *held_by_all_ -= bytes;
  }

  void DropReady() REQUIRES(mutex_) {
    for (const grpc::ByteBuffer& answer : ready_) Release(answer.Length());
    unsent_ -= ready_.size();
    ready_.clear();
  }

  bool MayRead() const REQUIRES(mutex_) {
    if (reading_ || read_all_ || closed_ || cancelled_) return false;
    if (unsent_ == 0) return true;
    return unsent_ < options_.stream_in_flight && held_bytes_ < kHeldBytes &&
           *held_by_all_ < kHeldBytesInAll;
  }

  bool IsOver() const REQUIRES(mutex_) {
    return (read_all_ || closed_ || cancelled_) && unsent_ == 0 && busy_ == 0 && !writing_ &&
           !finished_;
  }

  // Starts the next read and write if possible, and finishes the stream if it is over. The caller
  // has incremented busy_, which this decrements; afterwards this object may be destroyed.
  void Advance() EXCLUDES(mutex_) {
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
    grpc::Status status = closed_ ? ToGrpcStatus(ShuttingDown()) : grpc::Status::OK;
    if (cancelled_) status = grpc::Status::CANCELLED;
    lock.Unlock();
    Finish(status);
  }

  const PredictHandler* const handler_;
  const MakeMessages make_messages_;
  grpc::CallbackServerContext* const context_;
  const ServerOptions& options_;
  std::atomic<size_t>* const held_by_all_;
  const std::function<void(PredictStream*)> done_;

  grpc::ByteBuffer incoming_;  // Used by gRPC while reading_.
  grpc::ByteBuffer outgoing_;  // Used by gRPC while writing_.

  Mutex mutex_;
  Entries live_ GUARDED_BY(mutex_);                       // Requests not answered yet.
  std::list<grpc::ByteBuffer> ready_ GUARDED_BY(mutex_);  // Answers to send.
  size_t unsent_ GUARDED_BY(mutex_) = 0;                  // Requests whose answer was not sent yet.
  size_t held_bytes_ GUARDED_BY(mutex_) = 0;  // Their messages until answered, then their answers.
  size_t busy_ GUARDED_BY(mutex_) = 0;        // Threads that will lock mutex_ again.
  size_t gathered_ GUARDED_BY(mutex_) = 0;    // Answers that gRPC holds back to gather them.
  bool reading_ GUARDED_BY(mutex_) = false;
  bool writing_ GUARDED_BY(mutex_) = false;
  Clock::time_point write_start_ GUARDED_BY(mutex_);
  bool read_all_ GUARDED_BY(mutex_) = false;   // The client half-closed or left.
  bool closed_ GUARDED_BY(mutex_) = false;     // Close() was called.
  bool cancelled_ GUARDED_BY(mutex_) = false;  // Answers no longer reach the client.
  bool finished_ GUARDED_BY(mutex_) = false;
};

}  // namespace embershard::rpc
