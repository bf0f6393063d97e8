// A gRPC server for embershard's protocol, the Open Inference Protocol and grpc.health.v1, where
// each model is a service. This header includes neither protobuf nor gRPC.

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

// docs/cli.md describes the fields that have a flag, and when to change them.
struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 0;  // 0: any free port.
  std::chrono::milliseconds default_timeout{1000};

  // gRPC answers larger messages with RESOURCE_EXHAUSTED.
  int max_message_bytes = 64 << 20;

  // Approximate limit for all connections together; gRPC does the counting.
  size_t max_receiving_bytes = 512 << 20;

  ConnectionLimits connections = {};

  // Shortest time to retry after. Clients are told a longer one if earlier requests will take
  // longer.
  std::chrono::milliseconds retry_pushback{20};

  // Most requests of a stream in flight, at least 1; no more are read beyond it.
  size_t stream_in_flight = 256;

  // Time for a client to read an answer before its stream is cancelled.
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
  // Fails with kUnavailable if it cannot listen on the address, like Recorder::Open() and
  // CheckSecurity(), and with kNotFound if calls are to be recorded and not exactly one model is
  // served. `control` (not owned; must outlive the server) answers questions about the repository,
  // and takes load and unload requests if `model_control` is set. Null: the served models never
  // change.
  static Result<std::unique_ptr<Server>> Start(std::shared_ptr<ServedModels> served,
                                               const ServerOptions& options,
                                               ModelControl* control = nullptr);

  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server();  // Calls Drain(0).

  int port() const;

  uint64_t connections_refused() const;

  uint64_t strangers_reset() const;

  // Sets health to NOT_SERVING, refuses new calls, answers the accepted ones and closes the port.
  // Calls that take longer than `timeout` are answered CANCELLED; Drain() still waits for the model
  // to finish them. It does not wait for health watches or calls without a whole message. May be
  // called more than once, but not from an answer's callback.
  void Drain(std::chrono::milliseconds timeout);

  // All zero if calls are not recorded. Final after Drain().
  RecorderCounts recording() const;

  SecurityCounts security() const;

 private:
  struct State;
  explicit Server(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace embershard::rpc
