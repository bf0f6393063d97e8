#include "grpc/predictor_service.h"

#include <grpc/support/time.h>
#include <grpcpp/support/message_allocator.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/text.h"
#include "grpc/responses.h"
#include "grpc/status_map.h"

namespace embershard {
namespace {

// A client that leaves so long before its deadline, or with so small a share of its time left,
// has run out of time by its own clock.
constexpr std::chrono::milliseconds kClientsHeadStart{5};
constexpr int kClientsHeadStartShare = 20;

constexpr size_t kSlowLogChars = 128;  // Of what the client chose to say of itself.

// No exception leaves a handler or an answer. Here only memory can run out.
template <class Action>
Status Guarded(Action action) {
  try {
    return action();
  } catch (const std::exception& error) {
    return {StatusCode::kInternal, std::string("the call failed: ") + error.what(),
            StatusReason::kOutOfMemory};
  }
}

// Empty where the client sent no such header.
std::string_view HeaderOf(const grpc::CallbackServerContext& context, const char* key) {
  const auto& headers = context.client_metadata();
  const auto found = headers.find(key);
  if (found == headers.end()) return {};
  return {found->second.data(), found->second.size()};
}

}  // namespace

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
       const v1::PredictRequest& message, v1::PredictResponse* response)
      : context(context),
        message(message),
        response(response),
        arrival(Clock::now()),
        service_(service),
        wall_arrival_(service->recorder_ != nullptr ? std::chrono::system_clock::now()
                                                    : std::chrono::system_clock::time_point()),
        in_time_(service->Enter()) {
    service->telemetry_->CountArrival();
  }

  // If not, it is to be refused.
  bool in_time() const { return in_time_; }

  // The client has left, or gRPC says that the deadline has passed. Before OnDone(), and not
  // before Predict() has returned.
  void OnCancel() override {
    service_->engine_->Cancel(
        &ticket, OutOfTime(Clock::now()) ? StatusReason::kUnstated : StatusReason::kAbandoned);
  }

  void OnDone() override {
    // The answer is on its way, and the messages are still there.
    if (service_->recorder_ != nullptr) {
      service_->recorder_->Offer(message, ended, *response, wall_arrival_);
    }
    if (in_time_) service_->Leave();
    delete this;
  }

  grpc::CallbackServerContext* const context;
  const v1::PredictRequest& message;
  v1::PredictResponse* const response;
  const Clock::time_point arrival;
  Clock::time_point deadline = Clock::time_point::max();  // Once it has been parsed.
  Ticket ticket;
  Status ended;  // What it was answered, where that is recorded.

 private:
  // A client's clock began to run before ours: it gives up a little before our deadline.
  bool OutOfTime(Clock::time_point now) const {
    const Clock::duration early =
        std::max<Clock::duration>(kClientsHeadStart, (deadline - arrival) / kClientsHeadStartShare);
    return deadline - early <= now;
  }

  PredictorService* const service_;
  const std::chrono::system_clock::time_point wall_arrival_;  // Where it is recorded.
  const bool in_time_;
};

PredictorService::PredictorService(Engine* engine, Recorder* recorder,
                                   const GrpcServerOptions& options)
    : engine_(engine),
      telemetry_(&engine->telemetry()),
      recorder_(recorder),
      options_(options),
      parser_(engine),
      messages_(std::make_unique<MessagesAllocator>()) {
  SetMessageAllocatorFor_Predict(messages_.get());
}

PredictorService::~PredictorService() = default;

grpc::ServerUnaryReactor* PredictorService::Predict(grpc::CallbackServerContext* context,
                                                    const v1::PredictRequest* message,
                                                    v1::PredictResponse* response) {
  auto* const call = new Call(this, context, *message, response);
  const Status status = Guarded([&] {
    if (!call->in_time()) return ShuttingDown();
    return StartPredict(call);
  });
  if (!status.ok()) End(call, status, {});
  return call;
}

Status PredictorService::StartPredict(Call* call) {
  auto request = std::make_unique<Request>();
  if (Status status = parser_.Parse(call->message, request.get()); !status.ok()) {
    if (status.code() != StatusCode::kInvalidArgument) return status;
    return {status.code(), status.message(), StatusReason::kMalformed};
  }
  request->arrival = call->arrival;
  call->deadline = DeadlineOf(*call->context, request->arrival);
  request->deadline = call->deadline;
  request->abandoned = [call] { return call->context->IsCancelled(); };
  request->bytes = static_cast<Messages*>(call->context->GetRpcAllocatorState())->Keep();
  request->ticket = &call->ticket;
  request->answer = [this, call](Status status, Response answer) {
    if (status.ok()) {
      status = Guarded([&] {
        FillResponse(engine_->manifest(), call->message, answer, call->response);
        return Status();
      });
    }
    End(call, status, answer);
  };
  engine_->Predict(std::move(request));
  return {};
}

void PredictorService::End(Call* call, const Status& status, const Response& answer) const {
  const Outcome outcome = OutcomeOf(status);
  const Clock::time_point now = Clock::now();
  const uint64_t bytes = call->message.ByteSizeLong();
  telemetry_->slow_log().Offer(now - call->arrival, [&] {
    return SlowRequest{
        .unix_seconds = UnixSeconds(),
        .outcome = outcome,
        .message = status.message(),
        .examples = call->message.num_examples(),
        .ids = answer.num_ids,
        .bytes = bytes,
        .peer = call->context->peer(),
        .traceparent = PrintableAscii(HeaderOf(*call->context, "traceparent"), kSlowLogChars),
        .request_id = std::string(CutUtf8(call->message.request_id(), kSlowLogChars)),
        .queue_us = answer.timing.queue_us,
        .lookup_us = answer.timing.lookup_us,
        .dense_us = answer.timing.dense_us,
        .total_us = MicrosecondsBetween(call->arrival, now)};
  });
  telemetry_->CountEnd({.outcome = outcome,
                        .total = now - call->arrival,
                        .examples = call->message.num_examples(),
                        .bytes_received = bytes,
                        .bytes_sent = status.ok() ? call->response->ByteSizeLong() : 0});
  if (recorder_ != nullptr) call->ended = status;
  Finish(call->context, call, status);
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
