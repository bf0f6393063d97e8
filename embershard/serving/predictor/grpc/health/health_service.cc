#include "grpc/health/health_service.h"

#include <exception>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "grpc/health/v1/health.pb.h"
#include "grpc/predict/wire_messages.h"
#include "grpc/status_map.h"

namespace embershard::rpc {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using ServingStatus = HealthCheckResponse::ServingStatus;

constexpr size_t kRequestBytesMax = 4096;
constexpr std::chrono::milliseconds kSweepPeriod{1000};

// A refused call. Its answer has no message, so flow control cannot delay it.
class RefusedCall final : public RawService::StreamReactor {
 public:
  explicit RefusedCall(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
  bool InternalInlineable() override { return true; }  // See PredictCall.
};

// Nothing if the bytes are no request.
std::optional<std::string> ServiceOf(grpc::ByteBuffer* bytes) {
  HealthCheckRequest request;
  if (bytes->Length() > kRequestBytesMax || !ParseMessage(bytes, &request).ok()) return {};
  return request.service();
}

grpc::ByteBuffer ResponseOf(ServingStatus status) {
  HealthCheckResponse response;
  response.set_status(status);
  return WriteMessage(response);
}

}  // namespace

// Both methods are read as streams: gRPC shows a unary call only after its whole message.
class HealthService::Call final : public StreamReactor {
 public:
  Call(HealthService* health, Context* context, Method method, std::string connection)
      : health_(*health), context_(context), method_(method), connection_(std::move(connection)) {
    health_.mutex_.AssertHeld();
    deadline_ = Clock::now() + health_.limits_.request_timeout;
    place_ = health_.pending_.insert(health_.pending_.end(), this);
  }

  // REQUIRES: called once; the call is retained until its end.
  void Start() {
    StartRead(&incoming_);
    Release();
  }

  // Keeps the call from finishing before Release(). Returns false if it has finished.
  bool Retain() {
    health_.mutex_.AssertHeld();
    if (!finished_) ++retained_;
    return !finished_;
  }
  // Starts the next read or write if possible. The call may be destroyed as soon as this returns.
  void Release(bool cancel = false) EXCLUDES(health_.mutex_) {
    if (cancel) context_->TryCancel();
    MutexLock lock(health_.mutex_);
    if (const std::optional<ServingStatus> next = NextAnswer(); next.has_value()) {
      writing_ = true;
      sent_ = next;
      deadline_ = Clock::now() + health_.limits_.answer_timeout;
      lock.Unlock();
      outgoing_ = ResponseOf(*next);
      StartWrite(&outgoing_);
      lock.Lock();
    }
    if (--retained_ > 0 || !ended_.has_value() || writing_ || finished_) return;
    finished_ = true;
    const grpc::Status status = *ended_;
    lock.Unlock();
    Finish(status);
  }

  bool IsOverdue(Clock::time_point now) const {
    health_.mutex_.AssertHeld();
    return now >= deadline_;
  }

  void OnReadDone(bool ok) override {
    if (!ok) return End({grpc::StatusCode::INVALID_ARGUMENT, "the call has no message"});
    try {
      std::optional<std::string> service = ServiceOf(&incoming_);
      if (service.has_value()) return Answer(std::move(*service));
      End({grpc::StatusCode::INVALID_ARGUMENT, "could not parse request"});
    } catch (const std::exception&) {  // Out of memory.
      End({grpc::StatusCode::INTERNAL, "out of memory"});
    }
  }

  void OnWriteDone(bool ok) override {
    {
      MutexLock lock(health_.mutex_);
      writing_ = false;
      deadline_ = Clock::time_point::max();
      if (!ended_.has_value()) {
        if (!ok) ended_ = grpc::Status::CANCELLED;
        if (ok && method_ == Method::kCheck) ended_ = grpc::Status::OK;
      }
      Retain();
    }
    Release();
  }

  void OnCancel() override { End(grpc::Status::CANCELLED); }
  void OnDone() override {
    {
      MutexLock lock(health_.mutex_);
      (watching_ ? health_.watching_ : health_.pending_).erase(place_);
      const auto connection = health_.connections_.find(connection_);
      if (--connection->second == 0) health_.connections_.erase(connection);
    }
    delete this;
  }

  bool InternalInlineable() override { return true; }  // See PredictCall.

 private:
  void End(const grpc::Status& status) EXCLUDES(health_.mutex_) {
    {
      MutexLock lock(health_.mutex_);
      if (finished_) return;
      if (!ended_.has_value()) ended_ = status;
      Retain();
    }
    Release();
  }

  void Answer(std::string service) EXCLUDES(health_.mutex_) {
    {
      MutexLock lock(health_.mutex_);
      if (ended_.has_value()) return;
      const bool is_unknown = StatusOf(service) == HealthCheckResponse::SERVICE_UNKNOWN;
      if (method_ == Method::kCheck && is_unknown) {
        ended_ = grpc::Status(grpc::StatusCode::NOT_FOUND, "service name unknown");
      } else if (method_ == Method::kWatch && health_.watching_.size() >= health_.limits_.watches) {
        ended_ = grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                              "health watches: expected at most " +
                                  std::to_string(health_.limits_.watches) + " open");
      } else if (method_ == Method::kWatch) {
        health_.watching_.splice(health_.watching_.end(), health_.pending_, place_);
        watching_ = true;
      }
      deadline_ = Clock::time_point::max();
      service_ = std::move(service);
      Retain();
    }
    Release();
  }

  ServingStatus StatusOf(const std::string& service) const REQUIRES(health_.mutex_) {
    const auto entry = health_.serving_.find(service);
    if (entry == health_.serving_.end()) return HealthCheckResponse::SERVICE_UNKNOWN;
    return entry->second && !health_.none_serving_ ? HealthCheckResponse::SERVING
                                                   : HealthCheckResponse::NOT_SERVING;
  }

  // The next status to send; nothing while a write is pending or if the client knows the status.
  std::optional<ServingStatus> NextAnswer() const REQUIRES(health_.mutex_) {
    if (ended_.has_value() || writing_ || !service_.has_value()) return {};
    const ServingStatus status = StatusOf(*service_);
    if (sent_ == status) return {};
    return status;
  }

  HealthService& health_;
  grpc::CallbackServerContext* const context_;
  const Method method_;
  const std::string connection_;
  grpc::ByteBuffer incoming_;  // Used by gRPC until OnReadDone().
  grpc::ByteBuffer outgoing_;  // Used by gRPC while writing_.

  std::list<Call*>::iterator place_ GUARDED_BY(health_.mutex_);  // In pending_, or in watching_.
  bool watching_ GUARDED_BY(health_.mutex_) = false;
  std::optional<std::string> service_ GUARDED_BY(health_.mutex_);  // Once the request has arrived.
  std::optional<ServingStatus> sent_ GUARDED_BY(health_.mutex_);
  Clock::time_point deadline_ GUARDED_BY(health_.mutex_);
  bool writing_ GUARDED_BY(health_.mutex_) = false;
  size_t retained_ GUARDED_BY(health_.mutex_) = 1;                // Until Start().
  std::optional<grpc::Status> ended_ GUARDED_BY(health_.mutex_);  // The status to finish with.
  bool finished_ GUARDED_BY(health_.mutex_) = false;
};

HealthService::HealthService(const HealthLimits& limits)
    : RawService("grpc.health.v1.Health"), limits_(limits) {
  AddStream("Check", [this](Context* context) { return Open(context, Method::kCheck); });
  AddStream("Watch", [this](Context* context) { return Open(context, Method::kWatch); });
  SetServing("", true);
  sweeper_ =
      std::thread([this] { CancelOverdueCalls(); });  // Last, because nothing may throw after it.
}

HealthService::~HealthService() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  stop_.NotifyAll();
  sweeper_.join();
}

RawService::StreamReactor* HealthService::Open(Context* context, Method method) {
  std::string connection = context->peer();
  Call* oldest = nullptr;
  Call* call = nullptr;
  {
    MutexLock lock(mutex_);
    size_t& open = connections_[connection];
    if (open < limits_.connection_calls) {
      ++open;
      call = new Call(this, context, method, std::move(connection));
      if (pending_.size() > limits_.pending_calls && pending_.front()->Retain()) {
        oldest = pending_.front();
      }
    }
  }
  if (oldest != nullptr) oldest->Release(/*cancel=*/true);
  if (call == nullptr) {
    return new RefusedCall({grpc::StatusCode::RESOURCE_EXHAUSTED,
                            "health calls of one connection: expected at most " +
                                std::to_string(limits_.connection_calls) + " open"});
  }
  call->Start();
  return call;
}

void HealthService::SetServing(const std::string& service, bool serving) {
  Retained watching;
  {
    MutexLock lock(mutex_);
    if (none_serving_) return;
    serving_[service] = serving;
    watching = RetainWatching();
  }
  for (Call* const call : watching) call->Release();
}

void HealthService::SetNoneServing() {
  Retained watching;
  {
    MutexLock lock(mutex_);
    none_serving_ = true;
    watching = RetainWatching();
  }
  for (Call* const call : watching) call->Release();
}

HealthService::Retained HealthService::RetainWatching() {
  Retained watching;
  for (Call* const call : watching_) {
    if (call->Retain()) watching.push_back(call);
  }
  return watching;
}

void HealthService::CancelOverdueCalls() {
  MutexLock lock(mutex_);
  while (!stopping_) {
    const Clock::time_point now = Clock::now();
    Retained overdue;
    for (const std::list<Call*>* const calls : {&pending_, &watching_}) {
      for (Call* const call : *calls) {
        if (call->IsOverdue(now) && call->Retain()) overdue.push_back(call);
      }
    }
    lock.Unlock();
    for (Call* const call : overdue) call->Release(/*cancel=*/true);
    lock.Lock();
    if (!stopping_) stop_.WaitUntil(mutex_, now + kSweepPeriod);
  }
}

}  // namespace embershard::rpc
