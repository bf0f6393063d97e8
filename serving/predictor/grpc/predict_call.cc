#include "grpc/predict_call.h"

#include <string>
#include <utility>

#include "engine/engine.h"
#include "grpc/status_map.h"

namespace embershard {

grpc::ServerUnaryReactor* PredictCall::Start(const PredictHandler* handler, OpenCalls* calls,
                                             std::chrono::milliseconds retry_pushback,
                                             grpc::CallbackServerContext* context,
                                             std::shared_ptr<WireMessages> messages) {
  auto* const call = new PredictCall(handler, calls, retry_pushback, context, std::move(messages));
  handler->Arrive(&call->exchange_, PredictHandler::DeadlineOf(*context, Clock::now()));
  if (call->in_time_) {
    handler->Handle(&call->exchange_, call->messages_);
  } else {
    handler->Refuse(&call->exchange_, ShuttingDown());
  }
  return call;
}

PredictCall::PredictCall(const PredictHandler* handler, OpenCalls* calls,
                         std::chrono::milliseconds retry_pushback,
                         grpc::CallbackServerContext* context,
                         std::shared_ptr<WireMessages> messages)
    : handler_(handler),
      calls_(calls),
      retry_pushback_(retry_pushback),
      messages_(std::move(messages)),
      in_time_(calls->Enter()) {
  exchange_.context = context;
  exchange_.messages = messages_.get();
  exchange_.send = [this](const Status& status) { Send(status); };
}

void PredictCall::OnDone() {
  handler_->Record(exchange_);  // The answer is on its way.
  if (in_time_) calls_->Leave();
  delete this;
}

void PredictCall::Send(const Status& status) {
  if (status.code() == StatusCode::kResourceExhausted) {
    exchange_.context->AddTrailingMetadata(
        kRetryPushbackKey, std::to_string(RetryPushback(exchange_, retry_pushback_).count()));
  }
  Finish(ToGrpcStatus(status));
}

}  // namespace embershard
