// What connections may do: how many there are, what one may have open, and for how long.
// Free of gRPC on this side.

#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

namespace grpc {
class ServerBuilder;
}  // namespace grpc

namespace embershard::rpc {

// Of those with a flag docs/cli.md says what they are for, and when to change them.
struct ConnectionLimits {
  // 0: as many as the process may open files. One more is closed as it comes.
  size_t max_connections = 4096;

  // Gets words for the log while connections are refused or reset, once a minute at most. Called by
  // the threads that accept and reset connections: must not block for long.
  std::function<void(const std::string& words)> report = {};

  // Connections carry calls of several clients, so that none is reset for want of a token.
  bool behind_proxy = false;

  int max_calls = 10000;                                    // At least 1.
  std::chrono::milliseconds idle{std::chrono::minutes(5)};  // 0: for ever.

  // Spread by a tenth; calls that are open have half a minute more to end. 0: for ever.
  std::chrono::milliseconds age{0};

  // 0: a peer that has calls open and says nothing is not asked whether it is there.
  std::chrono::milliseconds keepalive{std::chrono::minutes(1)};
  std::chrono::milliseconds keepalive_timeout{std::chrono::seconds(20)};

  // Who asks sooner three times is closed. 0: as often as it likes.
  std::chrono::milliseconds min_ping{std::chrono::seconds(10)};
};

// Tells gRPC, of all but the first three, which the server sees to itself.
void Apply(const ConnectionLimits& limits, grpc::ServerBuilder* builder);

}  // namespace embershard::rpc
