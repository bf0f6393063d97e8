#include "grpc/connection/listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace embershard::rpc {
namespace {

// Time between attempts while no file descriptor is free.
constexpr int kPauseMilliseconds = 50;

struct FreeAddresses {
  void operator()(addrinfo* addresses) const { freeaddrinfo(addresses); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

// Null if the host has no address, with the reason in `error`.
Addresses Resolve(const std::string& host, int port, std::string* error) {
  // An IPv6 address may have brackets, as it has before a port.
  const bool bracketed = host.starts_with('[') && host.ends_with(']');
  const std::string name = bracketed ? host.substr(1, host.size() - 2) : host;
  addrinfo hints = {};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* addresses = nullptr;
  const int failed = getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &addresses);
  if (failed != 0) *error = gai_strerror(failed);
  return Addresses(addresses);
}

// A name may resolve to an address twice.
std::vector<addrinfo*> Distinct(addrinfo* addresses) {
  std::vector<addrinfo*> distinct;
  for (addrinfo* address = addresses; address != nullptr; address = address->ai_next) {
    const auto same = [address](const addrinfo* other) {
      return other->ai_addrlen == address->ai_addrlen &&
             std::memcmp(other->ai_addr, address->ai_addr, address->ai_addrlen) == 0;
    };
    if (std::none_of(distinct.begin(), distinct.end(), same)) distinct.push_back(address);
  }
  return distinct;
}

void SetPort(sockaddr* address, int port) {
  const auto number = htons(static_cast<uint16_t>(port));
  if (address->sa_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(address)->sin6_port = number;
  } else {
    reinterpret_cast<sockaddr_in*>(address)->sin_port = number;
  }
}

int PortOf(const File& socket) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (getsockname(socket.descriptor(), reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  const bool ipv6 = address.ss_family == AF_INET6;
  return ntohs(ipv6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                    : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

// Not open, with errno set, on failure.
File ListenOn(const addrinfo& address) {
  File socket(
      ::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, address.ai_protocol));
  const int yes = 1;
  // A server may start on a port where another has just ended, but not where one listens.
  if (socket.is_open() &&
      setsockopt(socket.descriptor(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) == 0 &&
      bind(socket.descriptor(), address.ai_addr, address.ai_addrlen) == 0 &&
      listen(socket.descriptor(), SOMAXCONN) == 0) {
    return socket;
  }
  return File();
}

std::string ReasonText(int error) {
  if (error == EADDRINUSE) return "in use";
  if (error == EADDRNOTAVAIL) return "no address of this machine";
  return std::strerror(error);
}

// The system has no room for a connection.
bool NoRoom(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

Result<std::unique_ptr<Listener>> Listener::Open(const std::string& host, int port) {
  std::unique_ptr<Listener> listener(new Listener);
  listener->port_ = port;
  std::string error;
  const Addresses addresses = Resolve(host, port, &error);
  for (const addrinfo* address : Distinct(addresses.get())) {
    SetPort(address->ai_addr, listener->port_);
    File socket = ListenOn(*address);
    if (!socket.is_open()) {
      const int reason = errno;
      if (error.empty()) error = ReasonText(reason);
      if (reason != EADDRINUSE || port == 0) continue;
      listener->listening_.clear();  // Another server has this port at another address.
      break;
    }
    if (listener->listening_.empty()) listener->port_ = PortOf(socket);
    listener->listening_.push_back(std::move(socket));
  }
  listener->stopping_ = File(eventfd(0, EFD_CLOEXEC));
  if (!listener->stopping_.is_open()) error = ReasonText(errno);
  if (!listener->listening_.empty() && listener->stopping_.is_open()) return listener;
  const bool bare_ipv6 = host.find(':') != std::string::npos && !host.starts_with('[');
  return Status(StatusCode::kUnavailable, "cannot listen on " +
                                              (bare_ipv6 ? "[" + host + "]" : host) + ":" +
                                              std::to_string(port) + ": " + error);
}

Listener::~Listener() { Stop(); }

void Listener::Start(Take take) {
  thread_ = std::thread([this, take = std::move(take)] { Run(take); });
}

void Listener::Stop() {
  if (thread_.joinable()) {
    eventfd_write(stopping_.descriptor(), 1);
    thread_.join();
  }
  listening_.clear();
}

void Listener::Run(const Take& take) {
  std::vector<pollfd> polled = {{.fd = stopping_.descriptor(), .events = POLLIN, .revents = 0}};
  for (const File& socket : listening_) {
    polled.push_back({.fd = socket.descriptor(), .events = POLLIN, .revents = 0});
  }
  bool room = true;
  while (true) {
    // Without room for connections, wait only for the end.
    poll(polled.data(), room ? polled.size() : 1, room ? -1 : kPauseMilliseconds);
    if ((polled[0].revents & POLLIN) != 0) return;
    room = true;
    for (size_t i = 1; i < polled.size(); ++i) {
      const int listening = polled[i].fd;
      File connection(accept4(listening, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (connection.is_open()) {
        const int yes = 1;  // Optional: without it answers come a little later.
        setsockopt(connection.descriptor(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
        take(listening, std::move(connection));
      } else if (NoRoom(errno)) {
        room = false;
      }  // Otherwise the connection is gone already.
    }
  }
}

}  // namespace embershard::rpc
