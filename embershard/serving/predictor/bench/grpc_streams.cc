#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/slice.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "bench/grpc_transport.h"
#include "bench/stream_fields.pb.h"

namespace embershard::bench {
namespace {

// Interval of the check for requests that the server has not answered by their deadline.
constexpr std::chrono::milliseconds kExpiryInterval{20};

// An id is "slot.use", both decimal numbers. Returns false if it is malformed.
bool ReadId(std::string_view id, size_t* slot, uint64_t* use) {
  const char* const end = id.data() + id.size();
  const auto first = std::from_chars(id.data(), end, *slot);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '.') return false;
  const auto second = std::from_chars(first.ptr + 1, end, *use);
  return second.ec == std::errc() && second.ptr == end;
}

uint32_t WholeMilliseconds(Clock::duration left) {
  const auto whole = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<uint32_t>(std::max<int64_t>(1, whole));
}

// Appends the id and the timeout to a serialized request, whose bytes are shared. Parsers take the
// last value of a field, so these values replace its own.
grpc::ByteBuffer WithIdAndTimeout(const grpc::ByteBuffer& request, const std::string& id,
                                  uint32_t timeout_ms) {
  StreamRequest fields;
  fields.set_request_id(id);
  fields.set_timeout_ms(timeout_ms);
  std::vector<grpc::Slice> slices;
  if (!request.Dump(&slices).ok()) return {};  // Never fails if the bytes are not compressed.
  slices.emplace_back(fields.SerializeAsString());
  return grpc::ByteBuffer(slices.data(), slices.size());
}

// Returns false if `bytes` is not a PredictResponse.
bool ReadStreamAnswer(const grpc::ByteBuffer& bytes, StreamAnswer* answer) {
  grpc::Slice slice;
  if (!bytes.TrySingleSlice(&slice).ok() && !bytes.DumpToSingleSlice(&slice).ok()) return false;
  return answer->ParseFromArray(slice.begin(), static_cast<int>(slice.size()));
}

// Slots are spread evenly over the streams. A stream is opened when a request needs it, and again
// after it ended. The open requests of a stream that ends fail.
class GrpcStreams final : public GrpcTransport {
 public:
  GrpcStreams(const LoadOptions& options, const Channels& channels, size_t streams, size_t slots)
      : method_(options.method),
        token_(options.token),
        slots_(slots),
        next_check_(Clock::now() + kExpiryInterval) {
    for (size_t i = 0; i < streams; ++i) {
      streams_.push_back(std::make_unique<Stream>(channels[i % channels.size()]));
    }
  }

  ~GrpcStreams() override {
    Close();
    void* tag;
    bool ok;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  void Send(size_t slot, const grpc::ByteBuffer& message, Clock::time_point deadline) override {
    const std::lock_guard lock(mutex_);
    Slot& sent = slots_[slot];
    sent.used = true;
    sent.deadline = deadline;
    sent.message = WithIdAndTimeout(message, StrCat(slot, ".", ++sent.use),
                                    WholeMilliseconds(deadline - Clock::now()));
    Stream* const stream = StreamOf(slot);
    stream->waiting.push_back(slot);
    if (!stream->context.has_value()) return Open(stream);
    if (stream->started && !stream->writing && !stream->broken) Write(stream);
  }

  std::optional<Reply> Next() override {
    while (true) {
      Clock::time_point next_check;
      {
        const std::lock_guard lock(mutex_);
        if (Clock::now() >= next_check_) ExpireLate();
        if (!ended_.empty()) {
          Reply reply = std::move(ended_.front());
          ended_.pop_front();
          return reply;
        }
        next_check = next_check_;
      }
      void* tag;
      bool ok;
      switch (queue_.AsyncNext(&tag, &ok, SystemTime(next_check))) {
        case grpc::CompletionQueue::SHUTDOWN:
          return {};
        case grpc::CompletionQueue::TIMEOUT:
          break;
        case grpc::CompletionQueue::GOT_EVENT:
          Handle(*static_cast<const Event*>(tag), ok);
      }
    }
  }

  void Cancel() override {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    CancelOpen();
  }

  void Close() override {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    CancelOpen();
    ShutdownIfClosed();
  }

 private:
  struct Stream;

  enum class Step { kStart, kRead, kWrite, kFinish };
  struct Event {
    Stream* stream;
    Step step;
  };

  struct Stream {
    explicit Stream(std::shared_ptr<grpc::Channel> channel) : stub(std::move(channel)) {}

    grpc::GenericStub stub;
    Event start{this, Step::kStart};
    Event read{this, Step::kRead};
    Event write{this, Step::kWrite};
    Event finish{this, Step::kFinish};
    grpc::ByteBuffer answer;
    grpc::Status status;
    // Guarded by mutex_.
    std::optional<grpc::ClientContext> context;  // Set while the stream is open.
    std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call;
    std::deque<size_t> waiting;  // Slots whose messages are not written yet.
    bool started = false;
    bool writing = false;
    bool broken = false;  // Nothing more can be read, so the call must be finished.
  };

  struct Slot {
    bool used = false;
    uint64_t use = 0;  // Number of requests so far. Tells a late answer from the current one.
    Clock::time_point deadline;
    grpc::ByteBuffer message;  // Empty once it is written.
  };

  void Handle(const Event& event, bool ok) {
    const std::lock_guard lock(mutex_);
    Stream* const stream = event.stream;
    switch (event.step) {
      case Step::kStart:
        stream->started = ok;
        stream->broken = !ok;
        if (ok) stream->call->Read(&stream->answer, &stream->read);
        break;
      case Step::kRead:
        stream->broken = !ok;
        if (ok) HandleAnswer(stream);
        break;
      case Step::kWrite:
        stream->writing = false;  // If the write failed, the open read fails too.
        break;
      case Step::kFinish:
        return HandleFinish(stream);
    }
    if (stream->writing) return;
    if (stream->broken) {
      stream->call->Finish(&stream->status, &stream->finish);
    } else if (stream->started && !stream->waiting.empty() && ok) {
      Write(stream);
    }
  }

  // REQUIRES for this and all functions below: mutex_ is held.
  void Open(Stream* stream) {
    stream->context.emplace();
    Authorize(token_, &*stream->context);
    if (cancelled_) stream->context->TryCancel();
    stream->call = stream->stub.PrepareCall(&*stream->context, method_, &queue_);
    stream->call->StartCall(&stream->start);
  }

  void Write(Stream* stream) {
    stream->writing = true;
    const grpc::ByteBuffer message = std::move(slots_[stream->waiting.front()].message);
    stream->waiting.pop_front();
    grpc::WriteOptions options;
    if (!stream->waiting.empty()) options.set_buffer_hint();
    stream->call->Write(message, options, &stream->write);
  }

  void HandleAnswer(Stream* stream) {
    StreamAnswer answer;
    size_t slot = 0;
    uint64_t use = 0;
    const bool read = ReadStreamAnswer(stream->answer, &answer) &&
                      ReadId(answer.request_id(), &slot, &use) && slot < slots_.size();
    if (read && slots_[slot].used && slots_[slot].use == use) {
      Free(slot, answer.failure().code(), answer.failure().message(), stream->answer);
    }
    stream->answer.Clear();
    stream->call->Read(&stream->answer, &stream->read);
  }

  void HandleFinish(Stream* stream) {
    const bool failed = !stream->status.ok();
    const int code = failed ? stream->status.error_code() : int{grpc::StatusCode::UNAVAILABLE};
    const std::string message =
        failed ? stream->status.error_message() : "the server ended the stream";
    for (size_t slot = 0; slot < slots_.size(); ++slot) {
      if (slots_[slot].used && StreamOf(slot) == stream) Free(slot, code, message, {});
    }
    stream->waiting.clear();
    stream->call.reset();
    stream->context.reset();
    stream->started = false;
    stream->broken = false;
    ShutdownIfClosed();
  }

  void Free(size_t slot, int code, std::string message, grpc::ByteBuffer answer) {
    slots_[slot].used = false;
    ended_.push_back({.slot = slot,
                      .code = code,
                      .message = std::move(message),
                      .answer = code == 0 ? std::move(answer) : grpc::ByteBuffer()});
  }

  void ExpireLate() {
    const Clock::time_point now = Clock::now();
    next_check_ = now + kExpiryInterval;
    for (size_t slot = 0; slot < slots_.size(); ++slot) {
      if (!slots_[slot].used || now < slots_[slot].deadline + kExpiryInterval) continue;
      std::erase(StreamOf(slot)->waiting, slot);
      Free(slot, grpc::StatusCode::DEADLINE_EXCEEDED, "no answer in time", {});
    }
  }

  void CancelOpen() {
    for (const auto& stream : streams_) {
      if (stream->context.has_value()) stream->context->TryCancel();
    }
  }

  void ShutdownIfClosed() {
    const bool open = std::any_of(streams_.begin(), streams_.end(),
                                  [](const auto& stream) { return stream->context.has_value(); });
    if (closed_ && !open && !std::exchange(shut_down_, true)) queue_.Shutdown();
  }

  Stream* StreamOf(size_t slot) { return streams_[slot % streams_.size()].get(); }

  const std::string method_;
  const std::string token_;
  std::vector<std::unique_ptr<Stream>> streams_;
  grpc::CompletionQueue queue_;

  std::mutex mutex_;
  std::vector<Slot> slots_;  // This and all fields below are guarded by mutex_.
  std::deque<Reply> ended_;  // Replies that Next() returns.
  Clock::time_point next_check_;
  bool cancelled_ = false;
  bool closed_ = false;
  bool shut_down_ = false;
};

}  // namespace

std::unique_ptr<GrpcTransport> MakeStreamTransport(const LoadOptions& options,
                                                   const Channels& channels, size_t streams,
                                                   size_t slots) {
  return std::make_unique<GrpcStreams>(options, channels, streams, slots);
}

}  // namespace embershard::bench
