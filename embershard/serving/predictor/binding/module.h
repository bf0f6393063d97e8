// The parts of the extension module embershard.serving._predictor. embershard/serving/_native.py is
// its only caller and says what the arguments mean.
//
// No call keeps the GIL while it loads, waits or runs a model, and no request that arrives over
// gRPC ever takes it.

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

// The fields of DenseProgram in serving/repository.py.
py::dict ProgramDict(const ProgramReport& program);

// An instance of the class in embershard.errors: the one map from Status. REQUIRES: the GIL,
// !status.ok().
py::object ToPythonError(const Status& status);

// A str. What is no UTF-8 becomes escapes. REQUIRES: the GIL.
py::str ToPythonText(const std::string& text);

// Raises it. REQUIRES: the GIL. Does nothing when ok.
void RaiseIfFailed(const Status& status);

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

// What `action` gives or, where the system has no memory or no thread left for it, that.
template <class Given, class Action>
Given OrExhausted(Action action) {
  try {
    return action();
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kResourceExhausted, "loading: the memory has run out");
  } catch (const std::system_error& error) {
    return Status(
        StatusCode::kResourceExhausted,
        std::string("loading: the system gives no more threads or memory: ") + error.what());
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
  Clock::duration slow_request{0};  // As ServedModels takes it, and
  ShadowOptions shadow;             // this,
  TrafficOptions traffic;           // and this.
  rpc::ServerOptions server;
};

// What serving/server.py and serving/local.py pass: keywords. Every one is needed.
PredictorArguments PredictorArgumentsFrom(const py::kwargs& given);
ServerArguments ServerArgumentsFrom(const py::kwargs& given);
rpc::SecurityOptions SecurityOptionsFrom(const py::kwargs& given);

// `value`, if it is 0 .. 2147483647; else raises RequestError, which begins with `name`.
double NumberInRange(const std::string& name, double value);

// Every metric of a server, as one flat list. docs/metrics.md describes them.
struct VersionMetrics {
  EngineSnapshot engine;
  bool is_default = false;
};

struct ServerMetrics {
  std::vector<VersionMetrics> versions;  // Those served, models and versions ascending.
  TelemetrySnapshot unserved;            // Calls that found no version; streams; slow calls.
  uint64_t connections_refused = 0;
  uint64_t strangers_reset = 0;
  rpc::SecurityCounts security;
};

// Tuples (name, help, kind, labels, value), those of one name together. `name` lacks the endings
// that Prometheus adds by kind. `kind`: counter, gauge, histogram, info or untyped. `labels`: a
// dict. `value`: a float or, of a histogram, (bounds, counts, sum) with one count more than bounds,
// not cumulative. REQUIRES: the GIL.
py::list MetricList(const ServerMetrics& server);

// The same list of a server with one version of one input and one device: all names and labels.
py::list ExampleMetricList();

}  // namespace embershard::binding
