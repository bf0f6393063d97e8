// TCP connections of which a test holds both ends.

#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>

#include "base/file.h"

namespace embershard::rpc {

inline File NewSocket() { return File(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

// Two ends of a TCP connection: the client's, and the one that a server accepted.
struct Connected {
  File client;
  File server;
};

// Connects from a loopback address to a port of IPv4, or to one of IPv6 that also takes IPv4.
inline Connected NewConnection(in_addr_t from = INADDR_LOOPBACK, int listening_family = AF_INET) {
  const File listening(socket(listening_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  sockaddr_in6 mapped = {};
  mapped.sin6_family = AF_INET6;
  inet_pton(AF_INET6, "::ffff:127.0.0.1", &mapped.sin6_addr);
  const bool is_mapped = listening_family == AF_INET6;
  auto* const any =
      is_mapped ? reinterpret_cast<sockaddr*>(&mapped) : reinterpret_cast<sockaddr*>(&address);
  socklen_t size = is_mapped ? sizeof(mapped) : sizeof(address);
  EXPECT_EQ(bind(listening.descriptor(), any, size), 0);
  EXPECT_EQ(listen(listening.descriptor(), 1), 0);
  EXPECT_EQ(getsockname(listening.descriptor(), any, &size), 0);
  if (is_mapped) address.sin_port = mapped.sin6_port;
  Connected both = {.client = NewSocket(), .server = File()};
  sockaddr_in source = {};
  source.sin_family = AF_INET;
  source.sin_addr.s_addr = htonl(from);
  EXPECT_EQ(bind(both.client.descriptor(), reinterpret_cast<sockaddr*>(&source), sizeof(source)),
            0);
  EXPECT_EQ(
      connect(both.client.descriptor(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  both.server = File(accept(listening.descriptor(), nullptr, nullptr));
  return both;
}

// Address of the client's end, in gRPC's notation.
inline std::string PeerName(const Connected& connection) {
  sockaddr_in address = {};
  socklen_t size = sizeof(address);
  getsockname(connection.client.descriptor(), reinterpret_cast<sockaddr*>(&address), &size);
  char text[INET_ADDRSTRLEN] = "";
  inet_ntop(AF_INET, &address.sin_addr, text, sizeof(text));
  return std::string("ipv4:") + text + ":" + std::to_string(ntohs(address.sin_port));
}

inline void Send(const Connected& connection, size_t bytes) {
  const std::string some(bytes, 'x');
  EXPECT_EQ(send(connection.client.descriptor(), some.data(), some.size(), 0),
            static_cast<ssize_t>(bytes));
}

// Closed or reset by the server.
inline bool IsClosed(const Connected& connection) {
  char byte;
  const ssize_t received = recv(connection.client.descriptor(), &byte, 1, MSG_DONTWAIT);
  return received == 0 || (received < 0 && errno == ECONNRESET);
}

}  // namespace embershard::rpc
