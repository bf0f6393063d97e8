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

// One call that asks for one prediction. Ends itself when gRPC is done with it.
class PredictCall final : public grpc::ServerUnaryReactor {
 public:
  // Owns neither `handler` nor `calls`, which counts the call until gRPC is done with it, or has it
  // refused. `retry_pushback`: see ServerOptions. `messages`: of the call's protocol. `answer`:
  // gRPC's.
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

  // Answers `message`. REQUIRES: called once.
  void Start(const grpc::ByteBuffer* message) {
    // The message is gRPC's own, and no constant: emptied, its bytes do not stay beside the parsed
    // ones.
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

  // The client cancelled, or gRPC says that the deadline has passed. Before OnDone(), and not
  // before Start() has returned.
  void OnCancel() override { handler_->Cancel(&exchange_); }
  void OnDone() override {
    handler_->Record(exchange_);  // The answer is on its way.
    if (in_time_) calls_->Leave();
    delete this;
  }
  // Both on the thread that learns of it: gRPC would hand each call to a thread of another pool,
  // only to forget it there, at 4 % and more of what a small request costs. gRPC's headers keep
  // this for reactors of its own, whose reactions do nothing; ours wait for short locks only.
  bool InternalInlineable() override { return true; }

 private:
  Status Read(grpc::ByteBuffer* message) {
    return Guarded("the call failed: ", [&] { return messages_->Read(message); });
  }

  grpc::Status Written() const {
    try {
      *answer_ = messages_->Write();
      return grpc::Status::OK;
    } catch (const std::exception&) {  // Memory has run out.
      return grpc::Status(grpc::StatusCode::INTERNAL, "out of memory");
    }
  }

  // Nothing of this object may be touched behind it.
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
  const bool in_time_;  // If not, it is to be refused.
  Exchange exchange_;
};

// How often streams are looked at. A client may read nothing for this much longer.
std::chrono::milliseconds PeriodOf(std::chrono::milliseconds stalled) {
  using std::chrono::milliseconds;
  return std::clamp<milliseconds>(stalled / 4, milliseconds(1), milliseconds(1000));
}

}  // namespace

// The open streams. Thread-safe. A thread of its own looks for streams whose clients read nothing.
class PredictService::Streams {
 public:
  // `handler` and `options` must outlive it, and it all its streams.
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

  // A new call. The stream is this object's, and gRPC's until that is done with it.
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

  // Closes every stream, also those that are opened later.
  void Close() {
    std::vector<std::shared_ptr<PredictStream>> streams;
    {
      MutexLock lock(mutex_);
      closing_ = true;
      streams = Copied();
    }
    for (const auto& stream : streams) stream->Close();
  }

  // Returns when all have ended, or at `deadline`.
  void WaitUntilEnded(Clock::time_point deadline) {
    MutexLock lock(mutex_);
    while (!open_.empty() && changed_.WaitUntil(mutex_, deadline)) {
    }
  }

 private:
  void Remove(PredictStream* stream) {
    handler_->telemetry().CountStreamEnd();
    std::shared_ptr<PredictStream> last;  // Ends behind the lock.
    MutexLock lock(mutex_);
    const auto found = open_.find(stream);
    last = std::move(found->second);
    open_.erase(found);
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
      } catch (const std::exception&) {  // Memory has run out. There is a next time.
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
  std::atomic<size_t> held_bytes_ = 0;  // By all streams.

  Mutex mutex_;
  CondVar changed_;  // Signalled when the fields below change.
  std::unordered_map<PredictStream*, std::shared_ptr<PredictStream>> open_ GUARDED_BY(mutex_);
  bool closing_ GUARDED_BY(mutex_) = false;
  bool stopping_ GUARDED_BY(mutex_) = false;

  std::thread watch_;  // Last, so that Watch() sees every field built.
};

PredictService::PredictService(const std::string& name, ServedModels* served, Recorder* recorder,
                               const ServerOptions& options, OpenConnections* connections)
    : RawService(name),
      served_(served),
      options_(options),
      handler_(served, recorder, options.default_timeout, connections) {}

PredictService::~PredictService() = default;

void PredictService::AddPredict(const std::string& method, MakeMessages make_messages) {
  // A stranger's first message may be larger than what all strangers may send.
  HeadersFirstHandler::OnHeaders on_headers;
  if (handler_.tells_authenticated()) {
    on_headers = [this](const Context& context) { handler_.SetAuthenticated(context); };
  }
  AddUnary(
      method,
      [this, make_messages](Context* context, const Bytes* message,
                            Bytes* answer) -> UnaryReactor* {
        if (!message->Valid()) {  // The client cancelled, or half-closed, without one.
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
