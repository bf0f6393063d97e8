#include "grpc/health/health_service.h"

#include <exception>
#include <list>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "grpc/health/v1/health.pb.h"

namespace embershard::rpc {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using Reactor = RawService::StreamReactor;
using ServingStatus = HealthCheckResponse::ServingStatus;

constexpr size_t kRequestBytesMax = 4096;
constexpr std::chrono::milliseconds kSweepPeriod{1000};

enum class Method { kCheck, kWatch };

// A call that is refused. Its answer has no message, so no flow control holds it back.
class RefusedCall final : public Reactor {
 public:
  explicit RefusedCall(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
  bool InternalInlineable() override { return true; }  // As PredictCall.
};

// The service that the request names; nothing if the bytes are no request.
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

// The open calls and what they ask about.
class HealthService::Calls {
 public:
  explicit Calls(const HealthLimits& limits)
      : limits_(limits), sweeper_([this] { CancelOverdueCalls(); }) {}
  ~Calls();

  Reactor* Open(grpc::CallbackServerContext* context, Method method) EXCLUDES(mutex_);
  void SetServing(const std::string& service, bool serving) EXCLUDES(mutex_);
  void SetNoneServing() EXCLUDES(mutex_);

 private:
  class Call;
  // Those that must not end before Release().
  using Retained = std::vector<Call*>;

  ServingStatus StatusOf(const std::string& service) const REQUIRES(mutex_);
  Retained RetainWatching() REQUIRES(mutex_);
  void CancelOverdueCalls() EXCLUDES(mutex_);

  const HealthLimits limits_;

  Mutex mutex_;
  CondVar stop_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  bool none_serving_ GUARDED_BY(mutex_) = false;
  std::unordered_map<std::string, bool> serving_ GUARDED_BY(mutex_);
  std::unordered_map<std::string, size_t> connections_ GUARDED_BY(mutex_);  // Open calls of each.
  std::list<Call*> pending_ GUARDED_BY(mutex_);                             // Oldest first.
  std::list<Call*> watching_ GUARDED_BY(mutex_);

  std::thread sweeper_;  // Last: it uses every field.
};

// Both methods are read as streams: gRPC shows a unary call only after its whole message.
class HealthService::Calls::Call final : public Reactor {
 public:
  Call(Calls* calls, grpc::CallbackServerContext* context, Method method, std::string connection)
      : calls_(*calls), context_(context), method_(method), connection_(std::move(connection)) {
    calls_.mutex_.AssertHeld();
    deadline_ = Clock::now() + calls_.limits_.request_timeout;
    place_ = calls_.pending_.insert(calls_.pending_.end(), this);
  }

  // REQUIRES: called once; the call is retained until its end.
  void Start() {
    StartRead(&incoming_);
    Release();
  }

  // False if the call has finished; otherwise it does not finish before Release().
  bool Retain() {
    calls_.mutex_.AssertHeld();
    if (!finished_) ++retained_;
    return !finished_;
  }
  // Starts what can be started. The call may be gone behind it.
  void Release(bool cancel = false) EXCLUDES(calls_.mutex_) {
    if (cancel) context_->TryCancel();
    MutexLock lock(calls_.mutex_);
    if (const std::optional<ServingStatus> next = NextAnswer(); next.has_value()) {
      writing_ = true;
      sent_ = next;
      deadline_ = Clock::now() + calls_.limits_.answer_timeout;
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
    calls_.mutex_.AssertHeld();
    return now >= deadline_;
  }

  void OnReadDone(bool ok) override {
    if (!ok) return End({grpc::StatusCode::INVALID_ARGUMENT, "the call has no message"});
    try {
      std::optional<std::string> service = ServiceOf(&incoming_);
      if (service.has_value()) return Answer(std::move(*service));
      End({grpc::StatusCode::INVALID_ARGUMENT, "could not parse request"});
    } catch (const std::exception&) {  // Memory has run out.
      End({grpc::StatusCode::INTERNAL, "out of memory"});
    }
  }

  void OnWriteDone(bool ok) override {
    {
      MutexLock lock(calls_.mutex_);
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
      MutexLock lock(calls_.mutex_);
      (watching_ ? calls_.watching_ : calls_.pending_).erase(place_);
      const auto connection = calls_.connections_.find(connection_);
      if (--connection->second == 0) calls_.connections_.erase(connection);
    }
    delete this;
  }

  bool InternalInlineable() override { return true; }  // As PredictCall.

 private:
  void End(const grpc::Status& status) EXCLUDES(calls_.mutex_) {
    {
      MutexLock lock(calls_.mutex_);
      if (finished_) return;
      if (!ended_.has_value()) ended_ = status;
      Retain();
    }
    Release();
  }

  void Answer(std::string service) EXCLUDES(calls_.mutex_) {
    {
      MutexLock lock(calls_.mutex_);
      if (ended_.has_value()) return;
      const bool is_unknown = calls_.StatusOf(service) == HealthCheckResponse::SERVICE_UNKNOWN;
      if (method_ == Method::kCheck && is_unknown) {
        ended_ = grpc::Status(grpc::StatusCode::NOT_FOUND, "service name unknown");
      } else if (method_ == Method::kWatch && calls_.watching_.size() >= calls_.limits_.watches) {
        ended_ = grpc::Status(
            grpc::StatusCode::RESOURCE_EXHAUSTED,
            "health watches: expected at most " + std::to_string(calls_.limits_.watches) + " open");
      } else if (method_ == Method::kWatch) {
        calls_.watching_.splice(calls_.watching_.end(), calls_.pending_, place_);
        watching_ = true;
      }
      deadline_ = Clock::time_point::max();
      service_ = std::move(service);
      Retain();
    }
    Release();
  }

  // What is to be sent; nothing while a write is pending, or if the client knows it.
  std::optional<ServingStatus> NextAnswer() const REQUIRES(calls_.mutex_) {
    if (ended_.has_value() || writing_ || !service_.has_value()) return {};
    const ServingStatus status = calls_.StatusOf(*service_);
    if (sent_ == status) return {};
    return status;
  }

  Calls& calls_;
  grpc::CallbackServerContext* const context_;
  const Method method_;
  const std::string connection_;
  grpc::ByteBuffer incoming_;  // gRPC's until OnReadDone().
  grpc::ByteBuffer outgoing_;  // gRPC's while writing_.

  std::list<Call*>::iterator place_ GUARDED_BY(calls_.mutex_);  // In pending_, or in watching_.
  bool watching_ GUARDED_BY(calls_.mutex_) = false;
  std::optional<std::string> service_ GUARDED_BY(calls_.mutex_);  // Once the request has arrived.
  std::optional<ServingStatus> sent_ GUARDED_BY(calls_.mutex_);
  Clock::time_point deadline_ GUARDED_BY(calls_.mutex_);
  bool writing_ GUARDED_BY(calls_.mutex_) = false;
  size_t retained_ GUARDED_BY(calls_.mutex_) = 1;                // Until Start().
  std::optional<grpc::Status> ended_ GUARDED_BY(calls_.mutex_);  // What it is to finish with.
  bool finished_ GUARDED_BY(calls_.mutex_) = false;
};

HealthService::Calls::~Calls() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  stop_.NotifyAll();
  sweeper_.join();
}

Reactor* HealthService::Calls::Open(grpc::CallbackServerContext* context, Method method) {
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

void HealthService::Calls::SetServing(const std::string& service, bool serving) {
  Retained watching;
  {
    MutexLock lock(mutex_);
    if (none_serving_) return;
    serving_[service] = serving;
    watching = RetainWatching();
  }
  for (Call* const call : watching) call->Release();
}

void HealthService::Calls::SetNoneServing() {
  Retained watching;
  {
    MutexLock lock(mutex_);
    none_serving_ = true;
    watching = RetainWatching();
  }
  for (Call* const call : watching) call->Release();
}

ServingStatus HealthService::Calls::StatusOf(const std::string& service) const {
  const auto found = serving_.find(service);
  if (found == serving_.end()) return HealthCheckResponse::SERVICE_UNKNOWN;
  return found->second && !none_serving_ ? HealthCheckResponse::SERVING
                                         : HealthCheckResponse::NOT_SERVING;
}

HealthService::Calls::Retained HealthService::Calls::RetainWatching() {
  Retained watching;
  for (Call* const call : watching_) {
    if (call->Retain()) watching.push_back(call);
  }
  return watching;
}

void HealthService::Calls::CancelOverdueCalls() {
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

HealthService::HealthService(const HealthLimits& limits)
    : RawService("grpc.health.v1.Health"), calls_(std::make_unique<Calls>(limits)) {
  AddStream("Check", [this](Context* context) { return calls_->Open(context, Method::kCheck); });
  AddStream("Watch", [this](Context* context) { return calls_->Open(context, Method::kWatch); });
  SetServing("", true);
}

HealthService::~HealthService() = default;

void HealthService::SetServing(const std::string& service, bool serving) {
  calls_->SetServing(service, serving);
}

void HealthService::SetNoneServing() { calls_->SetNoneServing(); }

}  // namespace embershard::rpc
