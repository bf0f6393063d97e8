// Implements grpc.health.v1.Health. Its clients need no token, so this service limits their calls
// and how long those wait for a client; gRPC's own health service limits neither.

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
  // Most open calls of one connection. Further ones are answered RESOURCE_EXHAUSTED.
  size_t connection_calls = 100;

  // Most watches in all. Further ones are answered RESOURCE_EXHAUSTED. Client-side health checking
  // keeps one on each connection.
  size_t watches = 4096;

  // Most calls in all that wait for their request to arrive or, for Check, for their answer to be
  // sent. A further call cancels the oldest.
  size_t pending_calls = 1000;

  // Time for a request to arrive, and for an answer to be read, before the call is cancelled.
  std::chrono::milliseconds request_timeout{std::chrono::seconds(10)};
  std::chrono::milliseconds answer_timeout{std::chrono::seconds(30)};
};

// Thread-safe. A thread of its own cancels calls that wait for their client too long.
class HealthService final : public RawService {
 public:
  explicit HealthService(const HealthLimits& limits = {});
  HealthService(const HealthService&) = delete;
  HealthService& operator=(const HealthService&) = delete;
  ~HealthService() override;  // REQUIRES: gRPC has finished every call.

  void SetServing(const std::string& service, bool serving) EXCLUDES(mutex_);

  // Sets every service to NOT_SERVING, permanently.
  void SetNoneServing() EXCLUDES(mutex_);

 private:
  class Call;
  enum class Method { kCheck, kWatch };
  // Calls that must not end before Release().
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
  std::unordered_map<std::string, size_t> connections_
      GUARDED_BY(mutex_);                        // Open calls by connection.
  std::list<Call*> pending_ GUARDED_BY(mutex_);  // Oldest first.
  std::list<Call*> watching_ GUARDED_BY(mutex_);

  std::thread sweeper_;  // Last, because it uses all fields.
};

}  // namespace embershard::rpc
