// The life of one request for a prediction, whatever call carries it: from its message to its
// answer. The adapters beside this file receive requests and send answers.

#pragma once

#include <grpcpp/server_context.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>

#include "base/clock.h"
#include "base/status.h"
#include "batching/request.h"
#include "grpc/connection/open_connections.h"
#include "grpc/predict/wire_messages.h"
#include "grpc/recorder.h"
#include "registry/served_models.h"
#include "telemetry/telemetry.h"

namespace embershard::rpc {

// A request and its answer. Its adapter owns it, fills in what stands first, and keeps it until
// `send` has returned.
struct Exchange {
  grpc::CallbackServerContext* context = nullptr;  // Of its call.
  WireMessages* messages = nullptr;  // The answer is filled where the request is answered well.
  bool alone = true;                 // Whether no other request waits for the thread of this one.

  // Called once, from any thread, perhaps within Handle(). The handler touches nothing of it, nor
  // of itself, behind that: the server may be gone.
  std::function<void(const Status&)> send;

  // The handler's.
  std::shared_ptr<Engine> engine;  // What answers it. Null where that is not served.
  Status refused;                  // Why it is null.
  Clock::time_point arrival;
  std::chrono::system_clock::time_point wall_arrival;  // Where it is recorded.
  Clock::time_point deadline;
  CancellationHandle cancellation;
  Status ended;                             // What it was answered, where that is recorded.
  std::chrono::nanoseconds retry_after{0};  // As in Response.
};

// How long a client that was refused to protect others is asked to wait. `least`: see
// ServerOptions::retry_pushback.
inline std::chrono::milliseconds RetryPushback(const Exchange& exchange,
                                               std::chrono::milliseconds least) {
  return std::max(least, std::chrono::ceil<std::chrono::milliseconds>(exchange.retry_after));
}

// A request is counted, from Arrive() until its answer goes out, by the telemetry of the version
// that answers it; by that of ServedModels where there is none. Any thread may call.
class PredictHandler {
 public:
  // Owns none of them; all must outlive it. `recorder`: null if none records. `connections`: told
  // of authenticated calls; null if calls need no token.
  PredictHandler(ServedModels* served, Recorder* recorder,
                 std::chrono::milliseconds default_timeout, OpenConnections* connections);

  // True if somebody is told of authenticated calls.
  bool tells_authenticated() const { return connections_ != nullptr; }
  // A call of this connection is authenticated.
  void SetAuthenticated(const grpc::CallbackServerContext& context) const;

  // A message has been received, and what it is for is what answers it, whatever is served
  // afterwards. It will be answered at its deadline at the latest: the earlier of
  // its own and that of the call, or the default where neither is stated. Handle() or Refuse()
  // must follow.
  void Arrive(Exchange* exchange, Clock::time_point call_deadline) const;

  // Has the request answered. `bytes` keep its message, which the model may still read when the
  // answer has gone out.
  void Handle(Exchange* exchange, std::shared_ptr<const void> bytes) const;

  // Answers it with a failure.
  void Refuse(Exchange* exchange, const Status& status) const { End(exchange, status, {}); }

  // Its client cancelled, or gRPC says that the deadline of its call has passed: where that has not
  // happened yet, it is answered.
  // REQUIRES: Arrive() has returned.
  void Cancel(Exchange* exchange) const;

  // Of what belongs to no version.
  Telemetry& telemetry() const { return served_->telemetry(); }

  // Where calls are recorded. REQUIRES: it has been answered.
  void Record(const Exchange& exchange) const;

  // When a call ends at the latest. Clock::time_point::max(): its client does not say.
  static Clock::time_point DeadlineOf(const grpc::CallbackServerContext& context,
                                      Clock::time_point now);

 private:
  // Once the engine has the request, its answer ends the exchange, and this is ok.
  Status Begin(Exchange* exchange, std::shared_ptr<const void> bytes) const;
  // The one end of every request, whatever became of it: counts it and sends the answer.
  // `answer`: as far as the request came.
  void End(Exchange* exchange, const Status& status, const Response& answer) const;

  Telemetry& TelemetryOf(const Exchange& exchange) const;

  ServedModels* const served_;
  Recorder* const recorder_;  // Null: nothing is recorded.
  const std::chrono::milliseconds default_timeout_;
  OpenConnections* const connections_;  // Null: no call needs a token.
};

}  // namespace embershard::rpc
