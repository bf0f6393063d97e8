// grpc.health.v1.Health. Clients need no token for it, so its calls are bounded here: gRPC's own
// health service bounds neither their number nor how long they wait for their clients.

#pragma once

#include <chrono>
#include <cstddef>
#include <list>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
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
  void SetServing(const std::string& service, bool serving) EXCLUDES(mutex_);

  // Every service is NOT_SERVING from now on.
  void SetNoneServing() EXCLUDES(mutex_);

 private:
  class Call;
  enum class Method { kCheck, kWatch };
  // Those that must not end before Release().
  using Retained = std::vector<Call*>;

  StreamReactor* Open(Context* context, Method method) EXCLUDES(mutex_);
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

}  // namespace embershard::rpc
