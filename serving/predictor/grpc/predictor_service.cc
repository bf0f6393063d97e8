#include "grpc/predictor_service.h"

#include <grpc/support/time.h>

#include <chrono>
#include <exception>
#include <string>
#include <utility>

#include "grpc/responses.h"
#include "grpc/status_map.h"

namespace embershard {
namespace {

// No exception leaves a handler or an answer.
template <class Action>
Status Guarded(Action action) {
  try {
    return action();
  } catch (const std::exception& error) {
    return Internal(std::string("the call failed: ") + error.what());
  }
}

}  // namespace

// Ends itself when gRPC is done with its call.
class PredictorService::Reactor final : public grpc::ServerUnaryReactor {
 public:
  explicit Reactor(PredictorService* service) : service_(service), counted_(service->Enter()) {}

  // Whether the call came in time. If not, it is to be refused.
  bool counted() const { return counted_; }

  void OnDone() override {
    if (counted_) service_->Leave();
    delete this;
  }

 private:
  PredictorService* const service_;
  const bool counted_;
};

PredictorService::PredictorService(Engine* engine, const GrpcServerOptions& options)
    : engine_(engine), options_(options), parser_(engine) {}

grpc::ServerUnaryReactor* PredictorService::Predict(grpc::CallbackServerContext* context,
                                                    const v1::PredictRequest* message,
                                                    v1::PredictResponse* response) {
  auto* const reactor = new Reactor(this);
  const Status status = Guarded([&] {
    if (!reactor->counted()) return ShuttingDown();
    return StartPredict(context, *message, response, reactor);
  });
  if (!status.ok()) Finish(context, reactor, status);
  return reactor;
}

// Once the engine has the request, its answer finishes the call, and this is ok.
Status PredictorService::StartPredict(grpc::CallbackServerContext* context,
                                      const v1::PredictRequest& message,
                                      v1::PredictResponse* response,
                                      grpc::ServerUnaryReactor* reactor) {
  auto request = std::make_unique<Request>();
  if (Status status = parser_.Parse(message, request.get()); !status.ok()) return status;
  request->arrival = Clock::now();
  request->deadline = DeadlineOf(*context, request->arrival);
  request->abandoned = [context] { return context->IsCancelled(); };
  request->answer = [this, context, &message, response, reactor](Status status, Response answer) {
    if (status.ok()) {
      status = Guarded([&] {
        FillResponse(engine_->manifest(), message, answer, response);
        return Status();
      });
    }
    Finish(context, reactor, status);
  };
  engine_->Predict(std::move(request));
  return {};
}

grpc::ServerUnaryReactor* PredictorService::GetModel(grpc::CallbackServerContext* context,
                                                     const v1::GetModelRequest* message,
                                                     v1::GetModelResponse* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  Finish(context, reactor, Guarded([&] { return Describe(*message, response); }));
  return reactor;
}

Status PredictorService::Describe(const v1::GetModelRequest& message,
                                  v1::GetModelResponse* response) const {
  Status status = engine_->CheckName(message.model(), message.version(), message.label());
  if (!status.ok()) return status;
  DescribeModel(*engine_, static_cast<uint64_t>(options_.max_message_bytes), response);
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
  std::unique_lock lock(mutex_);
  refusing_ = true;
  idle_.wait_until(lock, deadline, [this] { return in_flight_ == 0; });
}

void PredictorService::Finish(grpc::CallbackServerContext* context,
                              grpc::ServerUnaryReactor* reactor, const Status& status) const {
  if (status.code() == StatusCode::kResourceExhausted) {
    context->AddTrailingMetadata(kRetryPushbackKey,
                                 std::to_string(options_.retry_pushback.count()));
  }
  reactor->Finish(ToGrpcStatus(status));
}

Clock::time_point PredictorService::DeadlineOf(const grpc::CallbackServerContext& context,
                                               Clock::time_point now) const {
  const gpr_timespec deadline = context.raw_deadline();
  if (gpr_time_cmp(deadline, gpr_inf_future(deadline.clock_type)) == 0) {
    return now + options_.default_timeout;
  }
  // Ends at 2^31 milliseconds where a client states more.
  const gpr_timespec left = gpr_time_sub(deadline, gpr_now(deadline.clock_type));
  return now + std::chrono::milliseconds(gpr_time_to_millis(left));
}

}  // namespace embershard
