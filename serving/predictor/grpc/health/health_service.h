// grpc.health.v1.Health. Clients need no token for it, so its calls are bounded here: gRPC's own
// health service bounds neither their number nor how long they wait for their clients.

#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "grpc/predict/raw_service.h"

namespace embershard::rpc {

struct HealthLimits {
  // Open calls of one connection. One more is answered RESOURCE_EXHAUSTED.
  size_t connection_calls = 100;

  // Watches, in all. One more is answered RESOURCE_EXHAUSTED. Client-side health checking holds one
  // on each connection.
  size_t watches = 4096;

  // Calls in all whose request has not arrived or, of Check, whose answer has not been sent. One
  // more cancels the oldest.
  size_t pending_calls = 1000;

  // How long a request may take to arrive and an answer to be read, before the call is cancelled.
  std::chrono::milliseconds request_timeout{std::chrono::seconds(10)};
  std::chrono::milliseconds answer_timeout{std::chrono::seconds(30)};
};

// Thread-safe. A thread of its own cancels calls that wait for their client for too long.
class HealthService final : public RawService {
 public:
  explicit HealthService(const HealthLimits& limits = {});
  HealthService(const HealthService&) = delete;
  HealthService& operator=(const HealthService&) = delete;
  ~HealthService() override;  // REQUIRES: gRPC is done with every call.

  // The status of `service`, for new calls and for those that watch it.
  void SetServing(const std::string& service, bool serving);

  // Every service is NOT_SERVING from now on.
  void SetNoneServing();

 private:
  class Calls;
  const std::unique_ptr<Calls> calls_;
};

}  // namespace embershard::rpc
