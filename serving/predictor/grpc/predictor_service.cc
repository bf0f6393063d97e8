#include "grpc/predictor_service.h"

#include <grpcpp/support/message_allocator.h>

#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "grpc/responses.h"
#include "grpc/status_map.h"

namespace embershard {

// The messages of one call, which gRPC lets go of when the call is done. The model may still read
// the request then.
class PredictorService::Messages final
    : public grpc::MessageHolder<v1::PredictRequest, v1::PredictResponse> {
 public:
  Messages() {
    set_request(&asked_);
    set_response(&answer_);
  }

  static Messages* New() {
    auto messages = std::make_shared<Messages>();
    messages->own_ = messages;
    return messages.get();
  }
  void Release() override { const std::shared_ptr<Messages> last = std::move(own_); }

  // REQUIRES: gRPC has not let go.
  std::shared_ptr<const void> Keep() const { return own_; }

 private:
  v1::PredictRequest asked_;
  v1::PredictResponse answer_;
  std::shared_ptr<Messages> own_;  // Null once gRPC has let go.
};

class PredictorService::MessagesAllocator final
    : public grpc::MessageAllocator<v1::PredictRequest, v1::PredictResponse> {
 public:
  Messages* AllocateMessages() override { return Messages::New(); }
};

// One Predict call and its messages. Ends itself when gRPC is done with it.
class PredictorService::Call final : public grpc::ServerUnaryReactor {
 public:
  Call(PredictorService* service, grpc::CallbackServerContext* context,
       const v1::PredictRequest* message, v1::PredictResponse* response)
      : service_(service), in_time_(service->Enter()) {
    exchange_.context = context;
    exchange_.request = message;
    exchange_.response = response;
    exchange_.send = [this](const Status& status) { Send(status); };
  }

  void Start() {
    const PredictHandler& handler = service_->handler_;
    handler.Arrive(&exchange_, PredictHandler::DeadlineOf(*exchange_.context, Clock::now()));
    if (in_time_) {
      handler.Handle(&exchange_,
                     static_cast<Messages*>(exchange_.context->GetRpcAllocatorState())->Keep());
    } else {
      handler.Refuse(&exchange_, ShuttingDown());
    }
  }

  // The client has left, or gRPC says that the deadline has passed. Before OnDone(), and not
  // before Predict() has returned.
  void OnCancel() override { service_->handler_.Cancel(&exchange_); }

  void OnDone() override {
    // The answer is on its way, and the messages are still there.
    service_->handler_.Record(exchange_);
    if (in_time_) service_->Leave();
    delete this;
  }

 private:
  // Nothing of this object may be touched behind it.
  void Send(const Status& status) {
    if (status.code() == StatusCode::kResourceExhausted) {
      exchange_.context->AddTrailingMetadata(
          kRetryPushbackKey,
          std::to_string(RetryPushback(exchange_, service_->options_.retry_pushback).count()));
    }
    Finish(ToGrpcStatus(status));
  }

  PredictorService* const service_;
  const bool in_time_;  // If not, it is to be refused.
  Exchange exchange_;
};

PredictorService::PredictorService(ServedModels* served, Recorder* recorder,
                                   const GrpcServerOptions& options)
    : served_(served),
      options_(options),
      handler_(served, recorder, options.default_timeout),
      messages_(std::make_unique<MessagesAllocator>()),
      streams_(&handler_, {.in_flight = options.stream_in_flight,
                           .default_timeout = options.default_timeout,
                           .retry_pushback = options.retry_pushback,
                           .stalled = options.stream_stalled}) {
  SetMessageAllocatorFor_Predict(messages_.get());
}

PredictorService::~PredictorService() = default;

grpc::ServerUnaryReactor* PredictorService::Predict(grpc::CallbackServerContext* context,
                                                    const v1::PredictRequest* message,
                                                    v1::PredictResponse* response) {
  auto* const call = new Call(this, context, message, response);
  call->Start();
  return call;
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* PredictorService::PredictStream(
    grpc::CallbackServerContext* context) {
  return streams_.Open(context);
}

grpc::ServerUnaryReactor* PredictorService::GetModel(grpc::CallbackServerContext* context,
                                                     const v1::GetModelRequest* message,
                                                     v1::GetModelResponse* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  Status status;
  try {
    status = Describe(*message, response);
  } catch (const std::exception& error) {  // Only memory can run out.
    status = Internal(std::string("the call failed: ") + error.what());
  }
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

Status PredictorService::Describe(const v1::GetModelRequest& message,
                                  v1::GetModelResponse* response) const {
  const auto engine = served_->Find(message.model(), message.version(), message.label());
  if (!engine.ok()) return engine.status();
  DescribeModel(**engine, static_cast<uint64_t>(options_.max_message_bytes), response);
  return {};
}

bool PredictorService::Enter() {
  const std::lock_guard lock(mutex_);
  if (refusing_) return false;
  ++in_flight_;
  return true;
}

void PredictorService::Leave() {
  const std::lock_guard lock(mutex_);
  if (--in_flight_ == 0) idle_.notify_all();
}

void PredictorService::RefuseNew(Clock::time_point deadline) {
  {
    const std::lock_guard lock(mutex_);
    refusing_ = true;
  }
  streams_.Close(deadline);
  std::unique_lock lock(mutex_);
  idle_.wait_until(lock, deadline, [this] { return in_flight_ == 0; });
}

}  // namespace embershard
