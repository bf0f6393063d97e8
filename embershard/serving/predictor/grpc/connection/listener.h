// Accepts connections. gRPC's own listener stops forever if a connection arrives while no file
// descriptor is left. This one continues as soon as there is one.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/status.h"

namespace embershard::rpc {

class Listener {
 public:
  // Receives a connection and the listening descriptor that accepted it.
  using Take = std::function<void(int listening, File connection)>;

  // Listens on every local address that `host` resolves to; port 0 picks a free port. kUnavailable
  // without such an address, or if the port is in use. Connections wait until Start().
  static Result<std::unique_ptr<Listener>> Open(const std::string& host, int port);

  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener();  // Calls Stop().

  int port() const { return port_; }

  // `take` is called on a thread of its own, and must not block. REQUIRES: called once.
  void Start(Take take);

  // May be called more than once, from one thread.
  void Stop();

 private:
  Listener() = default;
  void Run(const Take& take);

  int port_ = 0;
  std::vector<File> listening_;
  File stopping_;  // Becomes readable when the thread should end.
  std::thread thread_;
};

}  // namespace embershard::rpc
