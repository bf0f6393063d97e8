// Limits of connections. This header does not include gRPC.

#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

namespace grpc {
class ServerBuilder;
}  // namespace grpc

namespace embershard::rpc {

// docs/cli.md describes the fields that have a flag, and when to change them.
struct ConnectionLimits {
  // Further connections are closed at once. 0: limited only by the open files of the process.
  size_t max_connections = 4096;

  // Receives a log line, at most once a minute, while connections are refused or reset. Called on
  // the threads that accept and reset connections, so it must not block for long.
  std::function<void(const std::string& words)> report = {};

  // True if connections carry calls of several clients, so that none is reset for having no token.
  bool behind_proxy = false;

  int max_calls = 10000;                                    // At least 1.
  std::chrono::milliseconds idle{std::chrono::minutes(5)};  // 0: no limit.

  // Spread by 10 %. Open calls get half a minute more to end. 0: no limit.
  std::chrono::milliseconds age{0};

  // Silence after which a peer with open calls is pinged. 0: never.
  std::chrono::milliseconds keepalive{std::chrono::minutes(1)};
  std::chrono::milliseconds keepalive_timeout{std::chrono::seconds(20)};

  // Shortest interval between a client's pings; it is disconnected after three that come sooner. 0:
  // no limit.
  std::chrono::milliseconds min_ping{std::chrono::seconds(10)};
};

// Passes the limits to gRPC, except the first three, which the server enforces itself.
void Apply(const ConnectionLimits& limits, grpc::ServerBuilder* builder);

}  // namespace embershard::rpc
