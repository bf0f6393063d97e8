// A port, and the connections that come to it.
//
// gRPC could listen by itself, but stops for good when a connection comes while no file
// descriptor is left. This goes on as soon as there is one.

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
  // Gets a connection and the descriptor that it came to.
  using Take = std::function<void(int listening, File connection)>;

  // Listens on every address that `host` means and this machine has; `port` 0 picks a free one.
  // kUnavailable where there is none, or where one is in use. Connections wait until Start().
  static Result<std::unique_ptr<Listener>> Open(const std::string& host, int port);

  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener();  // Calls Stop().

  // The one listened on.
  int port() const { return port_; }

  // Calls `take` from a thread of its own for each connection, which does not block.
  // REQUIRES: called once.
  void Start(Take take);

  // Ends the thread and closes the port. Safe to call more than once, from one thread.
  void Stop();

 private:
  Listener() = default;
  void Run(const Take& take);

  int port_ = 0;
  std::vector<File> listening_;
  File stopping_;  // Can be read from when the thread shall end.
  std::thread thread_;
};

}  // namespace embershard::rpc
