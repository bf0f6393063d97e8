// Handles a prediction request of any protocol. Adapters in this folder receive the requests and
// send the answers.

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

// A request and its answer. The adapter owns it, fills the first fields, and keeps it until `send`
// has returned.
struct Exchange {
  grpc::CallbackServerContext* context = nullptr;
  WireMessages* messages = nullptr;  // The answer is filled if the request succeeds.
  bool alone = true;                 // No other request waits for this request's thread.
  // Called once, on any thread, possibly inside Handle(). Afterwards the handler uses neither this
  // object nor itself, since the server may be destroyed.
  std::function<void(const Status&)> send;

  // Used by the handler only.
  std::shared_ptr<Engine> engine;  // Answers the request. Null if its model is not served.
  Status refused;                  // The reason if `engine` is null.
  Clock::time_point arrival;
  std::chrono::system_clock::time_point wall_arrival;  // Set if calls are recorded.
  Clock::time_point deadline;
  CancellationHandle cancellation;
  Status ended;                             // The answer's status, set if calls are recorded.
  std::chrono::nanoseconds retry_after{0};  // See Response.
};

// Time after which a client that was refused for lack of capacity should retry. `least`: see
// ServerOptions::retry_pushback.
inline std::chrono::milliseconds RetryPushback(const Exchange& exchange,
                                               std::chrono::milliseconds least) {
  return std::max(least, std::chrono::ceil<std::chrono::milliseconds>(exchange.retry_after));
}

// Thread-safe. From Arrive() until its answer is sent, a request is counted by the telemetry of the
// version that answers it, or by that of ServedModels if there is none.
class PredictHandler {
 public:
  // Owns none of the arguments; all must outlive this object. `recorder`: null if calls are not
  // recorded. `connections` is told of authenticated calls; null if calls need no token.
  PredictHandler(ServedModels* served, Recorder* recorder,
                 std::chrono::milliseconds default_timeout, OpenConnections* connections);

  // True if SetAuthenticated() has an effect.
  bool tells_authenticated() const { return connections_ != nullptr; }
  void SetAuthenticated(const grpc::CallbackServerContext& context) const;

  // Called when a message has been received. Chooses the version that answers it, also if another
  // version is served later, and sets the deadline: the earlier of the message's own and the
  // call's, or the default if neither is set. Handle() or Refuse() must follow.
  void Arrive(Exchange* exchange, Clock::time_point call_deadline) const;

  // Runs the request. `bytes` keeps its message alive, which the model may still read after the
  // answer was sent.
  void Handle(Exchange* exchange, std::shared_ptr<const void> bytes) const;

  void Refuse(Exchange* exchange, const Status& status) const { End(exchange, status, {}); }

  // Called if the client cancelled or the call's deadline has passed. Answers the request unless
  // that has happened. REQUIRES: Arrive() has returned.
  void Cancel(Exchange* exchange) const;

  // Telemetry of calls that belong to no version.
  Telemetry& telemetry() const { return served_->telemetry(); }

  // Records the call, if calls are recorded. REQUIRES: the request was answered.
  void Record(const Exchange& exchange) const;

  // Clock::time_point::max() if the client sets no deadline.
  static Clock::time_point DeadlineOf(const grpc::CallbackServerContext& context,
                                      Clock::time_point now);

 private:
  // If this returns ok, the engine's answer ends the exchange.
  Status Begin(Exchange* exchange, std::shared_ptr<const void> bytes) const;
  // Ends every request: counts it and sends the answer. `answer` holds what is known by then.
  void End(Exchange* exchange, const Status& status, const Response& answer) const;

  Telemetry& TelemetryOf(const Exchange& exchange) const;

  ServedModels* const served_;
  Recorder* const recorder_;  // Null if calls are not recorded.
  const std::chrono::milliseconds default_timeout_;
  OpenConnections* const connections_;  // Null if calls need no token.
};

}  // namespace embershard::rpc
