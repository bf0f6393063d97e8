// What a server consists of, and the thread that stops it.

#pragma once

#include <chrono>
#include <future>
#include <memory>

#include "engine/model_control.h"
#include "engine/served_models.h"
#include "grpc/server.h"

namespace embershard::binding {

// In this order: the server ends first, and the control before the models, which wait for the ends
// of engines that it holds.
struct ServerParts {
  std::shared_ptr<ServedModels> served;
  std::unique_ptr<ModelControl> control;
  std::unique_ptr<rpc::Server> server;
};

// Stops the parts on a thread of its own. A batch or a load that never ends never lets that thread
// end; it then keeps the parts, which the others may drop.
class StopThread {
 public:
  // As rpc::Server::Drain(timeout), while the control stops; then stops the models.
  StopThread(std::shared_ptr<ServerParts> parts, std::chrono::milliseconds timeout);

  // Whether all of it has stopped within `timeout`. Thread-safe.
  bool WaitFor(std::chrono::milliseconds timeout) const;

 private:
  std::shared_future<void> stopped_;
};

}  // namespace embershard::binding
