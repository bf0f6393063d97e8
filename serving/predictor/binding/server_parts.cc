#include "binding/server_parts.h"

#include <system_error>
#include <thread>
#include <utility>

namespace embershard::binding {
namespace {

void Stop(ServerParts* parts, std::chrono::milliseconds timeout) {
  // Beside the drain: a load that does not end keeps no accepted request from its answer. Without
  // a thread for it, behind the drain.
  const std::future<void> control = std::async([parts] { parts->control->Stop(); });
  parts->server->Drain(timeout);
  control.wait();
  parts->served->Stop();
}

}  // namespace

StopThread::StopThread(std::shared_ptr<ServerParts> parts, std::chrono::milliseconds timeout) {
  std::promise<void> stopped;
  stopped_ = stopped.get_future().share();
  try {
    std::thread([parts, timeout, stopped = std::move(stopped)]() mutable {
      Stop(parts.get(), timeout);
      parts.reset();  // Before anyone is told: who owns them expects to be the last.
      stopped.set_value();
    }).detach();
  } catch (const std::system_error&) {  // The system gives no thread.
    std::promise<void> here;
    stopped_ = here.get_future().share();
    Stop(parts.get(), timeout);
    here.set_value();
  }
}

bool StopThread::WaitFor(std::chrono::milliseconds timeout) const {
  return stopped_.wait_for(timeout) == std::future_status::ready;
}

}  // namespace embershard::binding
