// A port that speaks our protocol, the Open Inference Protocol and grpc.health.v1, where each model
// is a service of its name. Free of protobuf and gRPC on this side.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "grpc/connection/connection_limits.h"
#include "grpc/connection/security_options.h"
#include "grpc/recorder.h"
#include "registry/served_models.h"

namespace embershard {
class ModelControl;
}

namespace embershard::rpc {

// Of those with a flag docs/cli.md says what they are for, and when to change them.
struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 0;  // 0: a free one.
  std::chrono::milliseconds default_timeout{1000};

  // Larger messages are answered RESOURCE_EXHAUSTED by gRPC.
  int max_message_bytes = 64 << 20;

  // Of all connections together, and about, since it is gRPC that counts.
  size_t max_receiving_bytes = 512 << 20;

  ConnectionLimits connections = {};

  // At the least: a client waits longer where what is before it is foreseen to take longer.
  std::chrono::milliseconds retry_pushback{20};

  // At least 1. Beyond it nothing more is read from the stream.
  size_t stream_in_flight = 256;

  // How long an answer waits for its client to take it before the stream is cancelled.
  std::chrono::milliseconds stream_stalled{std::chrono::seconds(30)};

  RecorderOptions record = {};
  SecurityOptions security = {};
  bool model_control = false;
  bool reflection = false;
};

// The serialized GetModelResponse of proto/embershard/v1/predictor.proto.
std::string GetModelSerialized(const Manifest& manifest, const Limits& limits);

// Thread-safe.
class Server {
 public:
  // Listens and serves. kUnavailable when the address cannot be listened on; as
  // Recorder::Open() where calls are to be recorded, and kNotFound unless one model is served then;
  // as CheckSecurity(). `control`: what clients ask for the repository, and order where
  // `model_control` lets them; not owned, and must outlive the server. Null: what is served stays.
  static Result<std::unique_ptr<Server>> Start(std::shared_ptr<ServedModels> served,
                                               const ServerOptions& options,
                                               ModelControl* control = nullptr);

  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server();  // Calls Drain(0).

  // The one listened on.
  int port() const;

  // Those that ConnectionLimits::max_connections left no room for.
  uint64_t connections_refused() const;

  // Connections without an authenticated call that OpenConnections has reset.
  uint64_t strangers_reset() const;

  // Turns health to NOT_SERVING, refuses new calls, answers the accepted ones, closes
  // the port and returns. Clients of calls that take longer than `timeout` are told
  // CANCELLED, and it returns once the model is done with them. It does not wait for who
  // only watches the health, or has sent half a call. Safe to call more than once, but not
  // from an answer.
  void Drain(std::chrono::milliseconds timeout);

  // All zero where none are recorded. Whole once drained.
  RecorderCounts recording() const;

  SecurityCounts security() const;

 private:
  struct State;
  explicit Server(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace embershard::rpc
