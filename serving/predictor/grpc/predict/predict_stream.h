// One call that asks for many predictions, in any protocol: many requests, answered in whatever
// order they get ready.

#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "grpc/predict/predict_handler.h"
#include "grpc/predict/wire_messages.h"

namespace embershard::rpc {

// The first four as in ServerOptions.
struct PredictStreamOptions {
  size_t in_flight = 1;
  std::chrono::milliseconds default_timeout{};
  std::chrono::milliseconds retry_pushback{};
  std::chrono::milliseconds stalled{};
  size_t held_bytes = 16 << 20;          // Of messages that are not answered, and answers not sent.
  size_t held_bytes_in_all = 256 << 20;  // The same, of all streams of a service.
};

// Reads one message at a time, hands it on, and reads the next, as long as fewer than `in_flight`
// are unanswered or their answers unsent, and these are not too many bytes. Answers are sent one at
// a time; as long as more are ready, gRPC is asked to gather them.
//
//   ends with       when
//   OK              the client has half-closed, and all that was read is answered
//   UNAVAILABLE     Close() was called, and likewise
//   CANCELLED       the client cancelled, or reads no answers
//
// gRPC's callbacks, the engine's answers, Close() and CancelIfStalled() may come on any thread.
class PredictStream final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // `handler` and `held_by_all`, what all streams hold, must outlive it. `done` is called when gRPC
  // is done with it, which must not go before that.
  PredictStream(const PredictHandler* handler, MakeMessages make_messages,
                grpc::CallbackServerContext* context, const PredictStreamOptions& options,
                std::atomic<size_t>* held_by_all, std::function<void(PredictStream*)> done);

  // Reads the first message. REQUIRES: called once.
  void Start();

  // Reads nothing more, and ends when what has been read is answered.
  void Close();

  // Closes the stream of a client that has not read an answer for too long.
  void CancelIfStalled(Clock::time_point now);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override { done_(this); }

 private:
  struct Entry;
  using Entries = std::list<std::shared_ptr<Entry>>;  // Moving one takes no memory.

  void Parse(Entries* taken);
  Clock::time_point Deadline(const WireMessages& messages) const;
  // Sends the answer of one that is live.
  void Answer(Entry* entry, const Status& status);
  grpc::ByteBuffer Serialized(Entry* entry, const Status& status) const;

  void Hold(size_t bytes) REQUIRES(mutex_);
  void LetGo(size_t bytes) REQUIRES(mutex_);
  void DropReady() REQUIRES(mutex_);
  bool MayRead() const REQUIRES(mutex_);
  bool IsOver() const REQUIRES(mutex_);
  // Starts what can be started, and ends what is over. The caller has counted itself in busy_,
  // which this takes back; nothing of this object may be touched behind it.
  void Advance() EXCLUDES(mutex_);

  const PredictHandler* const handler_;
  const MakeMessages make_messages_;
  grpc::CallbackServerContext* const context_;
  const PredictStreamOptions options_;
  std::atomic<size_t>* const held_by_all_;
  const std::function<void(PredictStream*)> done_;

  grpc::ByteBuffer incoming_;  // gRPC's while reading_.
  grpc::ByteBuffer outgoing_;  // gRPC's while writing_.

  Mutex mutex_;
  Entries live_ GUARDED_BY(mutex_);                       // Not answered yet.
  std::list<grpc::ByteBuffer> ready_ GUARDED_BY(mutex_);  // Answers to send.
  size_t unsent_ GUARDED_BY(mutex_) = 0;      // Read, and the answer is live, ready or on its way.
  size_t held_bytes_ GUARDED_BY(mutex_) = 0;  // Of those: messages while live, then answers.
  size_t busy_ GUARDED_BY(mutex_) = 0;        // Threads that will take mutex_ again.
  size_t gathered_ GUARDED_BY(mutex_) = 0;    // Answers that gRPC holds back for the next one.
  bool reading_ GUARDED_BY(mutex_) = false;
  bool writing_ GUARDED_BY(mutex_) = false;
  Clock::time_point write_start_ GUARDED_BY(mutex_);
  bool read_all_ GUARDED_BY(mutex_) = false;   // The client has half-closed, or left.
  bool closed_ GUARDED_BY(mutex_) = false;     // By us.
  bool cancelled_ GUARDED_BY(mutex_) = false;  // Answers reach nobody any more.
  bool finished_ GUARDED_BY(mutex_) = false;
};

}  // namespace embershard::rpc
