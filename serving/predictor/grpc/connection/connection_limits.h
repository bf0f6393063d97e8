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

struct ConnectionLimits {
  // Open at once. One more is closed as it comes, which its client sees as UNAVAILABLE;
  // those that are there are served on. 0: as many as the process may open files. Raise it
  // where more clients connect, each of whom takes a file and some tens of kB.
  size_t max_connections = 4096;

  // Gets words for the log while connections are refused, once a minute at most. Called by the
  // thread that accepts connections: must not block for long.
  std::function<void(const std::string& words)> report = {};

  // Calls open at once on one connection. Clients are told and hold further calls back until
  // one ends; a connection that opens more all the same is closed. At least 1. Raise it where one
  // client has more requests in flight.
  int max_calls = 10000;

  // How long a connection may be without a call before it is closed, so that peers which stay for
  // nothing do not use up the file descriptors. Clients of gRPC connect again by themselves.
  // 0: for ever.
  std::chrono::milliseconds idle{std::chrono::minutes(5)};

  // After this long, spread by a tenth, a connection is closed: calls that are open have
  // half a minute to end, and clients connect again. 0: never. Set it where connections, not calls,
  // are spread over servers, so that a new server gets its share.
  std::chrono::milliseconds age{0};

  // A peer that has calls open and says nothing for this long is asked (HTTP/2 ping) whether it
  // is there, and closed if it does not say so within keepalive_timeout. 0: it is not
  // asked. Lower it where clients vanish without a word and hold much.
  std::chrono::milliseconds keepalive{std::chrono::minutes(1)};
  std::chrono::milliseconds keepalive_timeout{std::chrono::seconds(20)};

  // How often a peer may ask in turn, with calls open or without. Who asks sooner three times is
  // closed, with the word "too_many_pings". 0: as often as it likes.
  std::chrono::milliseconds min_ping{std::chrono::seconds(10)};
};

// Tells gRPC, of all but max_connections and report, which the server counts itself.
void Apply(const ConnectionLimits& limits, grpc::ServerBuilder* builder);

}  // namespace embershard::rpc
