#include "grpc/predict/predict_service.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "engine/engine.h"
#include "engine/request_completer.h"
#include "grpc/predict/predict_stream.h"
#include "grpc/status_map.h"

namespace embershard::rpc {
namespace {

// A call with one prediction. Destroys itself when gRPC has finished with it.
class PredictCall final : public grpc::ServerUnaryReactor {
 public:
  // Owns neither `handler` nor `calls`, which counts the call until gRPC has finished with it, or
  // refuses it. `retry_pushback`: see ServerOptions. `answer` belongs to gRPC.
  PredictCall(const PredictHandler* handler, OpenCalls* calls,
              std::chrono::milliseconds retry_pushback, grpc::CallbackServerContext* context,
              std::shared_ptr<WireMessages> messages, grpc::ByteBuffer* answer)
      : handler_(handler),
        calls_(calls),
        retry_pushback_(retry_pushback),
        messages_(std::move(messages)),
        answer_(answer),
        in_time_(calls->Enter()) {
    exchange_.context = context;
    exchange_.messages = messages_.get();
    exchange_.send = [this](const Status& status) { Send(status); };
  }

  // REQUIRES: called once.
  void Start(const grpc::ByteBuffer* message) {
    // gRPC owns the message, which is not really const. Clearing it frees the unparsed bytes.
    const Status read = Read(const_cast<grpc::ByteBuffer*>(message));
    handler_->Arrive(&exchange_, PredictHandler::DeadlineOf(*exchange_.context, Clock::now()));
    if (!in_time_) {
      handler_->Refuse(&exchange_, ShuttingDown());
    } else if (!read.ok()) {
      handler_->Refuse(&exchange_, read);
    } else {
      handler_->Handle(&exchange_, messages_);
    }
  }

  // Called if the client cancelled or the deadline has passed, after Start() and before OnDone().
  void OnCancel() override { handler_->Cancel(&exchange_); }
  void OnDone() override {
    handler_->Record(exchange_);  // After the answer was sent.
    if (in_time_) calls_->Leave();
    delete this;
  }
  // Runs OnCancel() and OnDone() on the current thread. Otherwise gRPC passes each call to another
  // thread pool, only to destroy it there, which costs over 4 % of a small request. gRPC reserves
  // this for reactors that do nothing; ours only take short locks.
  bool InternalInlineable() override { return true; }

 private:
  Status Read(grpc::ByteBuffer* message) {
    return Guarded("the call failed: ", [&] { return messages_->Read(message); });
  }

  grpc::Status Written() const {
    try {
      *answer_ = messages_->Write();
      return grpc::Status::OK;
    } catch (const std::exception&) {  // Out of memory.
      return grpc::Status(grpc::StatusCode::INTERNAL, "out of memory");
    }
  }

  // This object may be destroyed as soon as this returns.
  void Send(const Status& status) {
    if (status.ok()) return Finish(Written());
    if (status.code() == StatusCode::kResourceExhausted) {
      exchange_.context->AddTrailingMetadata(
          kRetryPushbackKey, std::to_string(RetryPushback(exchange_, retry_pushback_).count()));
    }
    Finish(ToGrpcStatus(status));
  }

  const PredictHandler* const handler_;
  OpenCalls* const calls_;
  const std::chrono::milliseconds retry_pushback_;
  const std::shared_ptr<WireMessages> messages_;
  grpc::ByteBuffer* const answer_;
  const bool in_time_;  // False if the call came after RefuseNew().
  Exchange exchange_;
};

// A client may stall for this much longer than the limit.
std::chrono::milliseconds PeriodOf(std::chrono::milliseconds stalled) {
  using std::chrono::milliseconds;
  return std::clamp<milliseconds>(stalled / 4, milliseconds(1), milliseconds(1000));
}

}  // namespace

// The open streams. Thread-safe. A thread of its own cancels streams whose clients do not read.
class PredictService::Streams {
 public:
  // `handler` and `options` must outlive this object, which must outlive its streams.
  Streams(const PredictHandler* handler, MakeMessages make_messages, const ServerOptions& options)
      : handler_(handler),
        make_messages_(make_messages),
        options_(options),
        watch_([this] { Watch(); }) {}
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;
  ~Streams() {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
    }
    changed_.NotifyAll();
    watch_.join();
  }

  // This object keeps the stream until gRPC has finished with it.
  PredictStream* Open(grpc::CallbackServerContext* context) {
    const auto stream =
        std::make_shared<PredictStream>(handler_, make_messages_, context, options_, &held_bytes_,
                                        [this](PredictStream* done) { Remove(done); });
    handler_->SetAuthenticated(*context);
    handler_->telemetry().CountStreamStart();
    bool closing;
    {
      MutexLock lock(mutex_);
      open_.emplace(stream.get(), stream);
      closing = closing_;
    }
    changed_.NotifyAll();
    if (closing) {
      stream->Close();
    } else {
      stream->Start();
    }
    return stream.get();
  }

  // Also closes streams that are opened later.
  void Close() {
    std::vector<std::shared_ptr<PredictStream>> streams;
    {
      MutexLock lock(mutex_);
      closing_ = true;
      streams = Copied();
    }
    for (const auto& stream : streams) stream->Close();
  }

  void WaitUntilEnded(Clock::time_point deadline) {
    MutexLock lock(mutex_);
    while (!open_.empty() && changed_.WaitUntil(mutex_, deadline)) {
    }
  }

 private:
  void Remove(PredictStream* stream) {
    handler_->telemetry().CountStreamEnd();
    std::shared_ptr<PredictStream> last;  // Destroyed after the lock is released.
    MutexLock lock(mutex_);
    const auto entry = open_.find(stream);
    last = std::move(entry->second);
    open_.erase(entry);
    changed_.NotifyAll();
  }

  std::vector<std::shared_ptr<PredictStream>> Copied() const REQUIRES(mutex_) {
    std::vector<std::shared_ptr<PredictStream>> streams;
    streams.reserve(open_.size());
    for (const auto& [key, stream] : open_) streams.push_back(stream);
    return streams;
  }

  void Watch() {
    const std::chrono::milliseconds period = PeriodOf(options_.stream_stalled);
    MutexLock lock(mutex_);
    while (true) {
      while (!stopping_ && open_.empty()) changed_.Wait(mutex_);
      const Clock::time_point next = Clock::now() + period;
      while (!stopping_ && changed_.WaitUntil(mutex_, next)) {
      }
      if (stopping_) return;
      std::vector<std::shared_ptr<PredictStream>> streams;
      try {
        streams = Copied();
      } catch (const std::exception&) {  // Out of memory: retry at the next check.
      }
      lock.Unlock();
      for (const auto& stream : streams) stream->CancelIfStalled(Clock::now());
      streams.clear();
      lock.Lock();
    }
  }

  const PredictHandler* const handler_;
  const MakeMessages make_messages_;
  const ServerOptions& options_;
  std::atomic<size_t> held_bytes_ = 0;  // Sum over all streams.

  Mutex mutex_;
  CondVar changed_;  // Signalled when the fields below change.
  std::unordered_map<PredictStream*, std::shared_ptr<PredictStream>> open_ GUARDED_BY(mutex_);
  bool closing_ GUARDED_BY(mutex_) = false;
  bool stopping_ GUARDED_BY(mutex_) = false;

  std::thread watch_;  // Last, so that Watch() starts after all fields exist.
};

PredictService::PredictService(const std::string& name, ServedModels* served, Recorder* recorder,
                               const ServerOptions& options, OpenConnections* connections)
    : RawService(name),
      served_(served),
      options_(options),
      handler_(served, recorder, options.default_timeout, connections) {}

PredictService::~PredictService() = default;

void PredictService::AddPredict(const std::string& method, MakeMessages make_messages) {
  // Needed because a stranger's first message may exceed the budget of all strangers.
  HeadersFirstHandler::OnHeaders on_headers;
  if (handler_.tells_authenticated()) {
    on_headers = [this](const Context& context) { handler_.SetAuthenticated(context); };
  }
  AddUnary(
      method,
      [this, make_messages](Context* context, const Bytes* message,
                            Bytes* answer) -> UnaryReactor* {
        if (!message->Valid()) {  // The client cancelled or half-closed without a message.
          return EndNow(context, {grpc::StatusCode::INVALID_ARGUMENT, "the call has no message"});
        }
        auto* const call = new PredictCall(&handler_, &calls_, options_.retry_pushback, context,
                                           make_messages(), answer);
        call->Start(message);
        return call;
      },
      std::move(on_headers));
}

void PredictService::AddPredictStream(const std::string& method, MakeMessages make_messages) {
  streams_ = std::make_unique<Streams>(&handler_, make_messages, options_);
  AddStream(method, [this](Context* context) { return streams_->Open(context); });
}

void PredictService::RefuseNew() {
  calls_.RefuseNew();
  if (streams_ != nullptr) streams_->Close();
}

void PredictService::WaitUntilDone(Clock::time_point deadline) {
  if (streams_ != nullptr) streams_->WaitUntilEnded(deadline);
  calls_.WaitUntilIdle(deadline);
}

}  // namespace embershard::rpc
