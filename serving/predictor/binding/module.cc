// The extension module embershard.serving._predictor. embershard/serving/_native.py is
// its only caller and says what the arguments mean.
//
// No call keeps the GIL while it loads, waits or runs a model, and no request that
// arrives over gRPC ever takes it.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/bus_error.h"
#include "base/clock.h"
#include "base/freed_memory.h"
#include "binding/arguments.h"
#include "binding/errors.h"
#include "binding/keywords.h"
#include "binding/snapshot_dict.h"
#include "engine/engine.h"
#include "engine/served_models.h"
#include "grpc/serialized.h"
#include "grpc/server.h"
#include "model/model.h"
#include "package/package.h"

namespace embershard {
namespace {

namespace py = pybind11;

template <class T>
T ValueOrRaise(Result<T> result) {
  RaiseIfFailed(result.status());
  return std::move(*result);
}

// Runs `action` without the GIL.
template <class Action>
auto Released(Action action) {
  const py::gil_scoped_release released;
  return action();
}

// Loads FBGEMM, opens the package, runs its samples.
Result<std::shared_ptr<ServedModels>> StartServing(const PredictorArguments& predictor,
                                                   const EngineOptions& options,
                                                   Clock::duration slow_request) {
  Result<std::unique_ptr<Model>> loaded = LoadPackageModel(predictor.folder, predictor.model);
  if (!loaded.ok()) return loaded.status();
  Result<std::unique_ptr<Engine>> engine = Engine::Start(std::move(*loaded), options);
  if (!engine.ok()) return engine.status();
  return ServedModels::Of(std::move(*engine), slow_request);
}

// A package behind a port.
class Server {
 public:
  explicit Server(const ServerArguments& arguments)
      : served_(ValueOrRaise(Released([&] {
          return StartServing(arguments.predictor, arguments.engine, arguments.slow_request);
        }))),
        server_(
            ValueOrRaise(Released([&] { return GrpcServer::Start(served_, arguments.server); }))) {}

  // Drains, and joins the threads.
  ~Server() {
    Released([this] {
      server_.reset();
      served_.reset();
    });
  }

  int port() const { return server_->port(); }

  void Stop(double timeout_seconds) {
    const std::chrono::milliseconds timeout(static_cast<int64_t>(timeout_seconds * 1000));
    Released([this, timeout] {
      server_->Drain(timeout);
      served_->Stop();
    });
  }

  py::dict Snapshot() const {
    const SecurityCounts security = server_->security();
    py::dict snapshot = ToDict(Released([this] {
      EngineSnapshot snapshot = served_->Engines().front()->Snapshot();
      snapshot.telemetry.Add(served_->telemetry().Read());
      return snapshot;
    }));
    snapshot["connections_refused"] = server_->connections_refused();
    snapshot["refused_calls"] = security.refused_calls;
    snapshot["certificate_expires_unix_seconds"] = security.certificate_expires_unix_seconds;
    return snapshot;
  }

  py::dict Recording() const {
    const RecorderCounts counts = server_->recording();
    py::dict named;
    named["recorded"] = counts.recorded;
    named["dropped"] = counts.dropped;
    named["bytes"] = counts.bytes;
    named["problem"] = counts.problem;
    return named;
  }

  py::list WaitSlow(double timeout_seconds) {
    const auto timeout = std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(NumberInRange("timeout_seconds", timeout_seconds)));
    return ToList(Released([&] { return served_->telemetry().slow_log().Wait(timeout); }));
  }

 private:
  std::shared_ptr<ServedModels> served_;
  std::unique_ptr<GrpcServer> server_;
};

// A package in this process.
class LocalPredictor {
 public:
  explicit LocalPredictor(const PredictorArguments& arguments)
      : served_(ValueOrRaise(Released([&] { return StartServing(arguments, {}, {}); }))) {}

  ~LocalPredictor() {
    Released([this] { served_.reset(); });
  }

  py::bytes GetModel() const { return py::bytes(GetModelSerialized(*served_->Engines().front())); }

  py::list PredictMerged(const std::vector<std::string>& requests) {
    const std::vector<Result<std::string>> answers =
        Released([&] { return PredictSerialized(*served_, requests); });
    py::list results;
    for (const Result<std::string>& answer : answers) {
      if (answer.ok()) {
        results.append(py::bytes(*answer));
      } else {
        results.append(ToPythonError(answer.status()));
      }
    }
    return results;
  }

 private:
  std::shared_ptr<ServedModels> served_;
};

void DefineServer(py::module_& module) {
  py::class_<Server>(module, "Server")
      .def(py::init([](const py::kwargs& given) {
        return std::make_unique<Server>(ServerArgumentsFrom(given));
      }))
      .def_property_readonly("port", &Server::port)
      .def("stop", &Server::Stop, py::arg("timeout_seconds"))
      .def("snapshot", &Server::Snapshot)
      .def("recording", &Server::Recording)
      .def("wait_slow", &Server::WaitSlow, py::arg("timeout_seconds"));
}

void DefineLocalPredictor(py::module_& module) {
  py::class_<LocalPredictor>(module, "LocalPredictor")
      .def(py::init([](const py::kwargs& given) {
        return std::make_unique<LocalPredictor>(PredictorArgumentsFrom(given));
      }))
      .def("get_model", &LocalPredictor::GetModel)
      .def("predict_merged", &LocalPredictor::PredictMerged, py::arg("requests"));
}

}  // namespace

PYBIND11_MODULE(_predictor, module) {
  DefineServer(module);
  DefineLocalPredictor(module);
  module.def("explain_bus_errors", &ExplainBusErrors);
  module.def("keep_freed_memory", &KeepFreedMemory);
  // Why the files cannot be used; empty where they can.
  module.def("check_security", [](const py::kwargs& given) {
    return ToPythonText(CheckSecurity(SecurityOptionsFrom(given)).message());
  });
  module.def(
      "verify_package",
      [](const std::string& folder) {
        RaiseIfFailed(Released([&] { return VerifyPackage(folder); }));
      },
      py::arg("folder"));
}

}  // namespace embershard
