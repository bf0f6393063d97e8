#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "binding/module.h"
#include "registry/model_control.h"
#include "registry/model_source.h"
#include "registry/served_models.h"
#include "telemetry/outcome.h"
#include "telemetry/slow_log.h"

namespace embershard::binding {
namespace {

using py::literals::operator""_a;

// The models wait for the engines that the control holds, so the models are destroyed last.
struct ServerParts {
  std::shared_ptr<ServedModels> served;
  std::unique_ptr<ModelControl> control;
  std::unique_ptr<rpc::Server> server;
};

void Stop(ServerParts* parts, std::chrono::milliseconds timeout) {
  // Runs during the drain, so that a load that does not end does not delay answers. If no thread
  // can be started, it runs after the drain.
  const std::future<void> control = std::async([parts] { parts->control->Stop(); });
  parts->server->Drain(timeout);
  control.wait();
  ServedModels& served = *parts->served;
  served.Stop();
  // Wait until only the served versions are left. Others end by themselves, unless one of their
  // batches never ends.
  while (!served.WaitForEnds(served.Engines().size(), Clock::now() + std::chrono::hours(1))) {
  }
}

// If a batch or a load never ends, neither does this thread. It then keeps the parts alive after
// all other owners released them.
class StopThread {
 public:
  // Calls rpc::Server::Drain(timeout) while the control stops. Then stops the models.
  StopThread(std::shared_ptr<ServerParts> parts, std::chrono::milliseconds timeout) {
    std::promise<void> stopped;
    stopped_ = stopped.get_future().share();
    try {
      std::thread([parts, timeout, stopped = std::move(stopped)]() mutable {
        Stop(parts.get(), timeout);
        parts.reset();  // First, because the waiting owner expects to hold the last pointer.
        stopped.set_value();
      }).detach();
    } catch (const std::system_error&) {  // The system has no more threads.
      std::promise<void> here;
      stopped_ = here.get_future().share();
      Stop(parts.get(), timeout);
      here.set_value();
    }
  }

  // Returns true if all parts have stopped. Thread-safe.
  bool WaitFor(std::chrono::milliseconds timeout) const {
    return stopped_.wait_for(timeout) == std::future_status::ready;
  }

 private:
  std::shared_future<void> stopped_;
};

// Returns one dict per call, with the fields of SlowRequest. The outcome becomes code and reason.
py::list ToList(const std::vector<SlowRequest>& requests) {
  py::list list;
  for (const SlowRequest& request : requests) {
    const OutcomeName outcome = NameOf(request.outcome);
    list.append(py::dict("unix_seconds"_a = request.unix_seconds, "code"_a = outcome.code,
                         "reason"_a = outcome.reason, "message"_a = ToPythonText(request.message),
                         "examples"_a = request.examples, "ids"_a = request.ids,
                         "bytes"_a = request.bytes, "peer"_a = ToPythonText(request.peer),
                         "traceparent"_a = ToPythonText(request.traceparent),
                         "request_id"_a = ToPythonText(request.request_id),
                         "queue_us"_a = request.queue_us, "lookup_us"_a = request.lookup_us,
                         "dense_us"_a = request.dense_us, "total_us"_a = request.total_us));
  }
  return list;
}

// Indexed by VersionState.
constexpr const char* kStateNames[] = {"unloaded", "loading", "ready", "failed"};

class Server {
 public:
  explicit Server(const ServerArguments& arguments) : parts_(std::make_shared<ServerParts>()) {
    parts_->served =
        std::make_shared<ServedModels>(arguments.slow_request, arguments.shadow, arguments.traffic);
    using Pool = Result<std::shared_ptr<WorkerPool>>;
    ModelLoaderOptions loader = arguments.loader;
    loader.engine.workers = ValueOrRaise(CatchExhaustion<Pool>(
        [&]() -> Pool { return std::make_shared<WorkerPool>(SlotCount(arguments.model)); }));
    parts_->control = std::make_unique<ModelControl>(
        parts_->served.get(),
        std::make_unique<RepositorySource>(arguments.repository, arguments.model), loader);
    const Status loaded = WithoutGil(
        [this] { return CatchExhaustion<Status>([this] { return parts_->control->Start(); }); });
    if (!loaded.ok()) End();
    RaiseIfFailed(loaded);
    using Started = Result<std::unique_ptr<rpc::Server>>;
    auto server = WithoutGil([&] {
      return CatchExhaustion<Started>([&] {
        return rpc::Server::Start(parts_->served, arguments.server, parts_->control.get());
      });
    });
    if (!server.ok()) End();
    parts_->server = ValueOrRaise(std::move(server));
  }

  ~Server() { End(); }

  int port() const { return parts_->server->port(); }

  // Returns true if everything has stopped, including abandoned loads, whose threads must not run
  // while the process exits. Waits without the GIL, because the loader's reports need it.
  bool Stop(double timeout_seconds) {
    const std::chrono::milliseconds timeout(static_cast<int64_t>(timeout_seconds * 1000));
    return WithoutGil([&] {
      std::call_once(stop_once_, [&] { stopping_.emplace(parts_, timeout); });
      return stopping_->WaitFor(timeout + kStopGrace) && parts_->control->hung_loads() == 0;
    });
  }

  py::list Metrics() const {
    ServerMetrics server;
    server.connections_refused = parts_->server->connections_refused();
    server.strangers_reset = parts_->server->strangers_reset();
    server.security = parts_->server->security();
    WithoutGil([&] {
      for (const ServedVersion& version : parts_->served->List()) {
        server.versions.push_back(
            {.engine = version.engine->Snapshot(), .is_default = version.is_default});
      }
      server.unserved = parts_->served->telemetry().Read();
    });
    return MetricList(server);
  }

  bool Exhausted() const {
    return WithoutGil([&] { return parts_->served->exhausted(); });
  }

  bool DeviceLost() const {
    return WithoutGil([&] { return parts_->served->device_lost(); });
  }

  // Returns the served versions in the form of Index(), with the names of their default plans.
  py::list Served() const {
    std::vector<std::string> plans;
    py::list served = Described(WithoutGil([&] {
      std::vector<ServedVersion> versions = parts_->served->List();
      for (ServedVersion& version : versions) {
        plans.push_back(version.engine->manifest().default_plan);
        version.engine.reset();  // Without the GIL, as this may be the last pointer.
      }
      return versions;
    }));
    for (size_t i = 0; i < plans.size(); ++i) served[i]["default_plan"] = ToPythonText(plans[i]);
    return served;
  }

  uint64_t Answered() const {
    return WithoutGil([&] {
      uint64_t answered = parts_->served->answered_by_ended();
      for (const auto& engine : parts_->served->Engines()) {
        answered += engine->Snapshot().telemetry.Count(Outcome::kOk);
      }
      return answered;
    });
  }

  // Load(), Unload() and Refresh() wait for the outcome. They raise if it is a failure.
  py::dict Load(const std::string& model, int64_t version, bool replace) {
    const Swap swap = replace ? Swap::kReplace : Swap::kBeside;
    return WaitForOutcome([&](ModelControl::Done done) {
      parts_->control->Load(model, version, swap, std::move(done));
    });
  }
  py::dict Unload(const std::string& model, int64_t version) {
    return WaitForOutcome(
        [&](ModelControl::Done done) { parts_->control->Unload(model, version, std::move(done)); });
  }
  py::dict Refresh() {
    return WaitForOutcome(
        [&](ModelControl::Done done) { parts_->control->Refresh(std::move(done)); });
  }

  py::list Index() const {
    return Described(ValueOrRaise(WithoutGil([this] { return parts_->control->Index(); })));
  }

  py::dict Recording() const {
    const rpc::RecorderCounts counts = parts_->server->recording();
    return py::dict("recorded"_a = counts.recorded, "dropped"_a = counts.dropped,
                    "bytes"_a = counts.bytes, "problem"_a = counts.problem);
  }

  py::list WaitSlow(double timeout_seconds) {
    const auto timeout = std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(NumberInRange("timeout_seconds", timeout_seconds)));
    return ToList(WithoutGil([&] { return parts_->served->telemetry().slow_log().Wait(timeout); }));
  }

 private:
  static py::list Described(const std::vector<ServedVersion>& versions) {
    py::list list;
    for (const ServedVersion& version : versions) {
      list.append(py::dict("model"_a = ToPythonText(version.model), "version"_a = version.version,
                           "labels"_a = version.labels, "is_default"_a = version.is_default,
                           "state"_a = kStateNames[static_cast<size_t>(version.state)],
                           "reason"_a = ToPythonText(version.reason),
                           "program"_a = ProgramDict(version.program)));
    }
    return list;
  }

  template <class Start>
  static py::dict WaitForOutcome(Start start) {
    const LoadOutcome outcome = WithoutGil([&start] {
      std::promise<LoadOutcome> done;
      start([&done](const LoadOutcome& outcome) { done.set_value(outcome); });
      return done.get_future().get();
    });
    RaiseIfFailed(outcome.status);
    return py::dict("seconds"_a = outcome.seconds, "unserved_seconds"_a = outcome.unserved_seconds);
  }

  void End() {
    WithoutGil([this] {
      if (!stopping_.has_value() || stopping_->WaitFor(std::chrono::milliseconds(0))) {
        parts_->control->Stop();
      }
      parts_.reset();
    });
  }

  // Additional time that Stop() waits for batches whose calls were cancelled at its timeout.
  static constexpr std::chrono::milliseconds kStopGrace{1000};

  std::shared_ptr<ServerParts> parts_;
  std::once_flag stop_once_;
  std::optional<StopThread> stopping_;
};

}  // namespace

void DefineServer(py::module_& module) {
  py::class_<Server>(module, "Server")
      .def(py::init([](const py::kwargs& kwargs) {
        return std::make_unique<Server>(ServerArgumentsFrom(kwargs));
      }))
      .def_property_readonly("port", &Server::port)
      .def_property_readonly("device_lost", &Server::DeviceLost)
      .def_property_readonly("exhausted", &Server::Exhausted)
      .def("stop", &Server::Stop, py::arg("timeout_seconds"))
      .def("metrics", &Server::Metrics)
      .def("served", &Server::Served)
      .def("answered", &Server::Answered)
      .def("load", &Server::Load, py::arg("model"), py::arg("version"), py::arg("replace"))
      .def("unload", &Server::Unload, py::arg("model"), py::arg("version"))
      .def("refresh", &Server::Refresh)
      .def("index", &Server::Index)
      .def("recording", &Server::Recording)
      .def("wait_slow", &Server::WaitSlow, py::arg("timeout_seconds"));
}

}  // namespace embershard::binding
