#include "grpc/predict/predict_service.h"

#include <chrono>
#include <exception>
#include <string>
#include <utility>

#include "engine/engine.h"
#include "grpc/predict/wire_messages.h"
#include "grpc/status_map.h"

namespace embershard::rpc {
namespace {

// One call that asks for one prediction. Ends itself when gRPC is done with it.
class PredictCall final : public grpc::ServerUnaryReactor {
 public:
  // Answers `message`, which is emptied, in `answer`; gRPC owns both. `messages`: of the call's
  // protocol. Owns neither `handler` nor `calls`, which counts the call until gRPC is done with it,
  // or has it refused. `retry_pushback`: see ServerOptions.
  static grpc::ServerUnaryReactor* Start(const PredictHandler* handler, OpenCalls* calls,
                                         std::chrono::milliseconds retry_pushback,
                                         grpc::CallbackServerContext* context,
                                         std::shared_ptr<WireMessages> messages,
                                         const grpc::ByteBuffer* message, grpc::ByteBuffer* answer);

  // The client cancelled, or gRPC says that the deadline has passed. Before OnDone(), and not
  // before Start() has returned.
  void OnCancel() override { handler_->Cancel(&exchange_); }
  void OnDone() override;
  // Both on the thread that learns of it: gRPC would hand each call to a thread of another pool,
  // only to forget it there, at 4 % and more of what a small request costs. gRPC's headers keep
  // this for reactors of its own, whose reactions do nothing; ours wait for short locks only.
  bool InternalInlineable() override { return true; }

 private:
  PredictCall(const PredictHandler* handler, OpenCalls* calls,
              std::chrono::milliseconds retry_pushback, grpc::CallbackServerContext* context,
              std::shared_ptr<WireMessages> messages, grpc::ByteBuffer* answer);

  Status Read(grpc::ByteBuffer* message);
  grpc::Status Written() const;

  // Nothing of this object may be touched behind it.
  void Send(const Status& status);

  const PredictHandler* const handler_;
  OpenCalls* const calls_;
  const std::chrono::milliseconds retry_pushback_;
  const std::shared_ptr<WireMessages> messages_;
  grpc::ByteBuffer* const answer_;
  const bool in_time_;  // If not, it is to be refused.
  Exchange exchange_;
};

grpc::ServerUnaryReactor* PredictCall::Start(const PredictHandler* handler, OpenCalls* calls,
                                             std::chrono::milliseconds retry_pushback,
                                             grpc::CallbackServerContext* context,
                                             std::shared_ptr<WireMessages> messages,
                                             const grpc::ByteBuffer* message,
                                             grpc::ByteBuffer* answer) {
  if (!message->Valid()) {  // The client cancelled, or half-closed, without one.
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "the call has no message"));
    return reactor;
  }
  auto* const call =
      new PredictCall(handler, calls, retry_pushback, context, std::move(messages), answer);
  // The message is gRPC's own, and no constant: emptied, its bytes do not stay beside the parsed
  // ones.
  const Status read = call->Read(const_cast<grpc::ByteBuffer*>(message));
  handler->Arrive(&call->exchange_, PredictHandler::DeadlineOf(*context, Clock::now()));
  if (!call->in_time_) {
    handler->Refuse(&call->exchange_, ShuttingDown());
  } else if (!read.ok()) {
    handler->Refuse(&call->exchange_, read);
  } else {
    handler->Handle(&call->exchange_, call->messages_);
  }
  return call;
}

PredictCall::PredictCall(const PredictHandler* handler, OpenCalls* calls,
                         std::chrono::milliseconds retry_pushback,
                         grpc::CallbackServerContext* context,
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

Status PredictCall::Read(grpc::ByteBuffer* message) {
  try {
    return messages_->Read(message);
  } catch (const std::exception&) {  // Memory has run out.
    return {StatusCode::kInternal, "out of memory", StatusReason::kOutOfMemory};
  }
}

grpc::Status PredictCall::Written() const {
  try {
    *answer_ = messages_->Write();
    return grpc::Status::OK;
  } catch (const std::exception&) {  // Memory has run out.
    return grpc::Status(grpc::StatusCode::INTERNAL, "out of memory");
  }
}

void PredictCall::OnDone() {
  handler_->Record(exchange_);  // The answer is on its way.
  if (in_time_) calls_->Leave();
  delete this;
}

void PredictCall::Send(const Status& status) {
  if (status.ok()) return Finish(Written());
  if (status.code() == StatusCode::kResourceExhausted) {
    exchange_.context->AddTrailingMetadata(
        kRetryPushbackKey, std::to_string(RetryPushback(exchange_, retry_pushback_).count()));
  }
  Finish(ToGrpcStatus(status));
}

}  // namespace

PredictService::PredictService(const std::string& name, ServedModels* served, Recorder* recorder,
                               const ServerOptions& options, OpenConnections* connections)
    : RawService(name),
      served_(served),
      options_(options),
      handler_(served, recorder, options.default_timeout, connections) {}

void PredictService::AddPredict(const std::string& method, MakeMessages make_messages) {
  AddUnary(method, [this, make_messages](Context* context, const Bytes* message, Bytes* answer) {
    return PredictCall::Start(&handler_, &calls_, options_.retry_pushback, context, make_messages(),
                              message, answer);
  });
}

void PredictService::AddPredictStream(const std::string& method, MakeMessages make_messages) {
  streams_ = std::make_unique<PredictStreams>(&handler_, make_messages, StreamOptionsOf(options_));
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
