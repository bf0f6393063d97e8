#include "grpc/predict_call.h"

#include <exception>
#include <string>
#include <utility>

#include "engine/engine.h"
#include "grpc/status_map.h"

namespace embershard {

grpc::ServerUnaryReactor* PredictCall::Start(const PredictHandler* handler, OpenCalls* calls,
                                             std::chrono::milliseconds retry_pushback,
                                             grpc::CallbackServerContext* context,
                                             std::shared_ptr<WireMessages> messages,
                                             const CallBytes& bytes) {
  auto* const call =
      new PredictCall(handler, calls, retry_pushback, context, std::move(messages), bytes);
  const bool read = call->Read();
  handler->Arrive(&call->exchange_, PredictHandler::DeadlineOf(*context, Clock::now()));
  if (!call->in_time_) {
    handler->Refuse(&call->exchange_, ShuttingDown());
  } else if (!read) {
    handler->Refuse(&call->exchange_, NotARequest(*call->messages_));
  } else {
    handler->Handle(&call->exchange_, call->messages_);
  }
  return call;
}

PredictCall::PredictCall(const PredictHandler* handler, OpenCalls* calls,
                         std::chrono::milliseconds retry_pushback,
                         grpc::CallbackServerContext* context,
                         std::shared_ptr<WireMessages> messages, const CallBytes& bytes)
    : handler_(handler),
      calls_(calls),
      retry_pushback_(retry_pushback),
      messages_(std::move(messages)),
      bytes_(bytes),
      in_time_(calls->Enter()) {
  exchange_.context = context;
  exchange_.messages = messages_.get();
  exchange_.send = [this](const Status& status) { Send(status); };
}

bool PredictCall::Read() {
  if (bytes_.message == nullptr) return true;
  try {
    return messages_->Read(bytes_.message);
  } catch (const std::exception&) {  // Memory has run out.
    return false;
  }
}

grpc::Status PredictCall::Written() const {
  if (bytes_.answer == nullptr) return grpc::Status::OK;
  try {
    *bytes_.answer = messages_->Write();
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

}  // namespace embershard
