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

// In this order: the server ends first, and the control before the models, which wait for the ends
// of engines that it holds.
struct ServerParts {
  std::shared_ptr<ServedModels> served;
  std::unique_ptr<ModelControl> control;
  std::unique_ptr<rpc::Server> server;
};

void Stop(ServerParts* parts, std::chrono::milliseconds timeout) {
  // Beside the drain: a load that does not end keeps no accepted request from its answer. Without
  // a thread for it, behind the drain.
  const std::future<void> control = std::async([parts] { parts->control->Stop(); });
  parts->server->Drain(timeout);
  control.wait();
  ServedModels& served = *parts->served;
  served.Stop();
  // A version that is served no more ends by itself, unless a batch of it never ends.
  while (!served.WaitForEnds(served.Engines().size(), Clock::now() + std::chrono::hours(1))) {
  }
}

// Stops the parts on a thread of its own. A batch or a load that never ends never lets that thread
// end; it then keeps the parts, which the others may drop.
class StopThread {
 public:
  // As rpc::Server::Drain(timeout), while the control stops; then stops the models.
  StopThread(std::shared_ptr<ServerParts> parts, std::chrono::milliseconds timeout) {
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

  // Whether all of it has stopped within `timeout`. Thread-safe.
  bool WaitFor(std::chrono::milliseconds timeout) const {
    return stopped_.wait_for(timeout) == std::future_status::ready;
  }

 private:
  std::shared_future<void> stopped_;
};

// One dict a call, with the fields of SlowRequest; its outcome as code and reason.
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

// In the order of VersionState.
constexpr const char* kStateNames[] = {"unloaded", "loading", "ready", "failed"};

// A repository behind a port.
class Server {
 public:
  explicit Server(const ServerArguments& arguments) : parts_(std::make_shared<ServerParts>()) {
    parts_->served =
        std::make_shared<ServedModels>(arguments.slow_request, arguments.shadow, arguments.traffic);
    using Pool = Result<std::shared_ptr<WorkerPool>>;
    ModelLoaderOptions loader = arguments.loader;
    loader.engine.workers = ValueOrRaise(OrExhausted<Pool>(
        [&]() -> Pool { return std::make_shared<WorkerPool>(SlotCount(arguments.model)); }));
    parts_->control = std::make_unique<ModelControl>(
        parts_->served.get(),
        std::make_unique<RepositorySource>(arguments.repository, arguments.model), loader);
    const Status loaded = Released(
        [this] { return OrExhausted<Status>([this] { return parts_->control->Start(); }); });
    if (!loaded.ok()) End();
    RaiseIfFailed(loaded);
    using Started = Result<std::unique_ptr<rpc::Server>>;
    auto server = Released([&] {
      return OrExhausted<Started>([&] {
        return rpc::Server::Start(parts_->served, arguments.server, parts_->control.get());
      });
    });
    if (!server.ok()) End();
    parts_->server = ValueOrRaise(std::move(server));
  }

  ~Server() { End(); }

  int port() const { return parts_->server->port(); }

  // Whether all of it has stopped, loads that were given up too: their threads must not meet the
  // destructors of a process that ends. Reports of the loader take the GIL: nobody here holds it.
  bool Stop(double timeout_seconds) {
    const std::chrono::milliseconds timeout(static_cast<int64_t>(timeout_seconds * 1000));
    return Released([&] {
      std::call_once(stop_once_, [&] { stopping_.emplace(parts_, timeout); });
      return stopping_->WaitFor(timeout + kStopGrace) && parts_->control->hung_loads() == 0;
    });
  }

  // See MetricList().
  py::list Metrics() const {
    ServerMetrics server;
    server.connections_refused = parts_->server->connections_refused();
    server.strangers_reset = parts_->server->strangers_reset();
    server.security = parts_->server->security();
    Released([&] {
      for (const ServedVersion& each : parts_->served->List()) {
        server.versions.push_back(
            {.engine = each.engine->Snapshot(), .is_default = each.is_default});
      }
      server.unserved = parts_->served->telemetry().Read();
    });
    return MetricList(server);
  }

  bool Exhausted() const {
    return Released([&] { return parts_->served->exhausted(); });
  }

  bool DeviceLost() const {
    return Released([&] { return parts_->served->device_lost(); });
  }

  // The versions served: as in Index(), and with the names of their default plans.
  py::list Served() const {
    std::vector<std::string> plans;
    py::list served = Described(Released([&] {
      std::vector<ServedVersion> versions = parts_->served->List();
      for (ServedVersion& version : versions) {
        plans.push_back(version.engine->manifest().default_plan);
        version.engine.reset();  // This may be the last to hold one.
      }
      return versions;
    }));
    for (size_t i = 0; i < plans.size(); ++i) served[i]["default_plan"] = ToPythonText(plans[i]);
    return served;
  }

  // Requests answered well since the start, by versions that have ended too.
  uint64_t Answered() const {
    return Released([&] {
      uint64_t answered = parts_->served->answered_by_ended();
      for (const auto& engine : parts_->served->Engines()) {
        answered += engine->Snapshot().telemetry.Count(Outcome::kOk);
      }
      return answered;
    });
  }

  // Each of these waits until it has happened, and raises where it failed.
  py::dict Load(const std::string& model, int64_t version, bool replace) {
    const Swap swap = replace ? Swap::kReplace : Swap::kBeside;
    return Ordered([&](ModelControl::Done done) {
      parts_->control->Load(model, version, swap, std::move(done));
    });
  }
  py::dict Unload(const std::string& model, int64_t version) {
    return Ordered(
        [&](ModelControl::Done done) { parts_->control->Unload(model, version, std::move(done)); });
  }
  py::dict Refresh() {
    return Ordered([&](ModelControl::Done done) { parts_->control->Refresh(std::move(done)); });
  }

  py::list Index() const {
    return Described(ValueOrRaise(Released([this] { return parts_->control->Index(); })));
  }

  py::dict Recording() const {
    const rpc::RecorderCounts counts = parts_->server->recording();
    return py::dict("recorded"_a = counts.recorded, "dropped"_a = counts.dropped,
                    "bytes"_a = counts.bytes, "problem"_a = counts.problem);
  }

  py::list WaitSlow(double timeout_seconds) {
    const auto timeout = std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(NumberInRange("timeout_seconds", timeout_seconds)));
    return ToList(Released([&] { return parts_->served->telemetry().slow_log().Wait(timeout); }));
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

  template <class Give>
  static py::dict Ordered(Give give) {
    const LoadOutcome outcome = Released([&give] {
      std::promise<LoadOutcome> done;
      give([&done](const LoadOutcome& outcome) { done.set_value(outcome); });
      return done.get_future().get();
    });
    RaiseIfFailed(outcome.status);
    return py::dict("seconds"_a = outcome.seconds, "unserved_seconds"_a = outcome.unserved_seconds);
  }

  // Drains, and joins the threads; leaves them to StopThread where they did not stop in time.
  void End() {
    Released([this] {
      if (!stopping_.has_value() || stopping_->WaitFor(std::chrono::milliseconds(0))) {
        parts_->control->Stop();
      }
      parts_.reset();
    });
  }

  // How much longer than its timeout Stop() waits: for batches whose calls were cancelled then.
  static constexpr std::chrono::milliseconds kStopGrace{1000};

  std::shared_ptr<ServerParts> parts_;
  std::once_flag stop_once_;
  std::optional<StopThread> stopping_;
};

}  // namespace

void DefineServer(py::module_& module) {
  py::class_<Server>(module, "Server")
      .def(py::init([](const py::kwargs& given) {
        return std::make_unique<Server>(ServerArgumentsFrom(given));
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
