// The parts of the extension module embershard.serving._predictor. Calls release the GIL while they
// load, wait or run a model. Requests that arrive over gRPC never take it.

#pragma once

#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <new>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "engine/engine.h"
#include "grpc/connection/security_options.h"
#include "grpc/server.h"
#include "model/model.h"
#include "registry/model_loader.h"
#include "telemetry/telemetry.h"

namespace embershard::binding {

namespace py = pybind11;

void DefineServer(py::module_& module);
void DefineLocalPredictor(py::module_& module);

// Returns the fields of DenseProgram in serving/repository.py.
py::dict ProgramDict(const ProgramReport& program);

// Returns an exception of embershard.errors. Only this function maps a Status to its class.
// REQUIRES: the caller holds the GIL, and !status.ok().
py::object ToPythonError(const Status& status);

// Returns a str, with bytes that are not UTF-8 as escapes. REQUIRES: the caller holds the GIL.
py::str ToPythonText(const std::string& text);

// Raises the error of `status` unless it is OK. REQUIRES: the caller holds the GIL.
void RaiseIfFailed(const Status& status);

template <class T>
T ValueOrRaise(Result<T> result) {
  RaiseIfFailed(result.status());
  return std::move(*result);
}

template <class Action>
auto WithoutGil(Action action) {
  const py::gil_scoped_release released;
  return action();
}

// Returns kResourceExhausted if the system has no memory or no threads left for `action`.
template <class T, class Action>
T CatchExhaustion(Action action) {
  try {
    return action();
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kResourceExhausted, "loading: out of memory");
  } catch (const std::system_error& error) {
    return Status(
        StatusCode::kResourceExhausted,
        std::string("loading: the system has no more threads or memory: ") + error.what());
  }
}

struct PredictorArguments {
  std::string folder;
  ModelOptions model;
};

struct ServerArguments {
  std::string repository;
  ModelOptions model;
  ModelLoaderOptions loader;
  rpc::ServerOptions server;

  // Arguments of ServedModels.
  Clock::duration slow_request{0};
  ShadowOptions shadow;
  TrafficOptions traffic;
};

// Parse the keyword arguments that serving/server.py and serving/local.py pass. All are required.
PredictorArguments PredictorArgumentsFrom(const py::kwargs& kwargs);
ServerArguments ServerArgumentsFrom(const py::kwargs& kwargs);
rpc::SecurityOptions SecurityOptionsFrom(const py::kwargs& kwargs);

// Returns `value`, or raises a RequestError that names `name` if it is not in 0 .. 2147483647.
double NumberInRange(const std::string& name, double value);

struct VersionMetrics {
  EngineSnapshot engine;
  bool is_default = false;
};

struct ServerMetrics {
  std::vector<VersionMetrics> versions;  // The served versions, ordered by model and version.
  TelemetrySnapshot unserved;            // Calls that found no version, open streams, slow calls.
  uint64_t connections_refused = 0;
  uint64_t strangers_reset = 0;
  rpc::SecurityCounts security;
};

// Returns all metrics of a server, which docs/metrics.md describes, as a list of tuples
// (name, help, kind, labels, value). Tuples with the same name follow each other.
//
//   name    without the suffix that Prometheus adds for the kind
//   kind    counter, gauge, histogram, info or untyped
//   labels  a dict
//   value   a float. For a histogram (bounds, counts, sum), where counts are not cumulative and
//           have one element more than bounds
//
// REQUIRES: the caller holds the GIL.
py::list MetricList(const ServerMetrics& server);

// Returns MetricList() of a server with one version that has one input and one device. It contains
// all names and labels.
py::list ExampleMetricList();

}  // namespace embershard::binding
