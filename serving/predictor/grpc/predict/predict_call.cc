#include "grpc/predict/predict_call.h"

#include <exception>
#include <string>
#include <utility>

#include "engine/engine.h"
#include "grpc/status_map.h"

namespace embershard::rpc {

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

}  // namespace embershard::rpc
