// The extension module embershard.serving._predictor. embershard/serving/_native.py is
// its only caller and says what the arguments mean.
//
// No call keeps the GIL while it loads, waits or runs a model, and no request that
// arrives over gRPC ever takes it.

#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/bus_error.h"
#include "base/clock.h"
#include "base/freed_memory.h"
#include "binding/errors.h"
#include "binding/snapshot_dict.h"
#include "engine/engine.h"
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

// `value` times `seconds`, for an argument that a person may have set.
Result<Clock::duration> DurationOf(const std::string& name, double value, double seconds) {
  constexpr double kMost = (1U << 31) - 1;
  if (!(value >= 0 && value <= kMost)) {
    return InvalidArgument(name + ": expected 0..2147483647, got " + std::to_string(value));
  }
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(value * seconds));
}

// Runs `action` without the GIL.
template <class Action>
auto Released(Action action) {
  const py::gil_scoped_release released;
  return action();
}

// Loads FBGEMM, opens the package, runs its samples.
Result<std::shared_ptr<Engine>> StartEngine(const std::string& folder, const ModelOptions& model,
                                            const EngineOptions& options) {
  Result<std::unique_ptr<Model>> loaded = LoadPackageModel(folder, model);
  if (!loaded.ok()) return loaded.status();
  Result<std::unique_ptr<Engine>> engine = Engine::Start(std::move(*loaded), options);
  if (!engine.ok()) return engine.status();
  return std::shared_ptr<Engine>(std::move(*engine));
}

// A package behind a port.
class Server {
 public:
  Server(const std::string& folder, const ModelOptions& model, const EngineOptions& engine,
         const GrpcServerOptions& server)
      : engine_(ValueOrRaise(Released([&] { return StartEngine(folder, model, engine); }))),
        server_(ValueOrRaise(Released([&] { return GrpcServer::Start(engine_, server); }))) {}

  // Drains, and joins the threads.
  ~Server() {
    Released([this] {
      server_.reset();
      engine_.reset();
    });
  }

  int port() const { return server_->port(); }

  void Stop(double timeout_seconds) {
    const std::chrono::milliseconds timeout(static_cast<int64_t>(timeout_seconds * 1000));
    Released([this, timeout] {
      server_->Drain(timeout);
      engine_->Stop();
    });
  }

  py::dict Snapshot() const {
    return ToDict(Released([this] { return engine_->Snapshot(); }));
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
    const Clock::duration timeout = ValueOrRaise(DurationOf("timeout_seconds", timeout_seconds, 1));
    return ToList(Released([&] { return engine_->telemetry().slow_log().Wait(timeout); }));
  }

 private:
  std::shared_ptr<Engine> engine_;
  std::unique_ptr<GrpcServer> server_;
};

// A package in this process.
class LocalPredictor {
 public:
  LocalPredictor(const std::string& folder, const ModelOptions& model)
      : engine_(ValueOrRaise(Released([&] { return StartEngine(folder, model, {}); }))) {}

  ~LocalPredictor() {
    Released([this] { engine_.reset(); });
  }

  py::bytes GetModel() const { return py::bytes(GetModelSerialized(*engine_)); }

  py::list PredictMerged(const std::vector<std::string>& requests) {
    const std::vector<Result<std::string>> answers =
        Released([&] { return PredictSerialized(engine_.get(), requests); });
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
  std::shared_ptr<Engine> engine_;
};

ModelOptions ModelOptionsFrom(const std::string& fbgemm_folder, const std::string& plan,
                              bool resident, int threads) {
  ModelOptions options;
  options.package.residency = resident ? TableResidency::kResident : TableResidency::kMmap;
  options.package.plan = plan;
  options.threads = threads;
  options.fbgemm_folder = fbgemm_folder;
  return options;
}

std::chrono::milliseconds SecondsOf(const py::dict& options, const char* name) {
  const double value = options[name].cast<double>();
  return std::chrono::ceil<std::chrono::milliseconds>(ValueOrRaise(DurationOf(name, value, 1)));
}

ConnectionLimits ConnectionLimitsFrom(const py::dict& options) {
  ConnectionLimits limits;
  limits.max_connections = options["max_connections"].cast<size_t>();
  limits.max_calls = options["max_connection_calls"].cast<int>();
  limits.idle = SecondsOf(options, "connection_idle_seconds");
  limits.age = SecondsOf(options, "connection_age_seconds");
  limits.keepalive = SecondsOf(options, "keepalive_seconds");
  limits.min_ping = SecondsOf(options, "min_ping_seconds");
  return limits;
}

void DefineServer(py::module_& module) {
  py::class_<Server>(module, "Server")
      .def(
          py::init([](const std::string& folder, const std::string& fbgemm_folder,
                      const std::string& plan, bool resident, int threads, float sample_tolerance,
                      size_t max_batch_examples, uint64_t max_batch_ids, size_t merge_examples,
                      size_t max_queued_examples, uint64_t max_queued_ids,
                      uint64_t max_queued_bytes, const std::string& host, int port,
                      int64_t default_timeout_ms, int max_message_bytes,
                      const py::dict& connections, double slow_request_ms,
                      const std::string& record_path, uint64_t record_requests, double record_share,
                      const std::function<void(const std::string&)>& record_report) {
            EngineOptions engine;
            engine.sample_tolerance = sample_tolerance;
            engine.slow_request =
                ValueOrRaise(DurationOf("slow_request_ms", slow_request_ms, 1e-3));
            engine.batching.max_batch_examples = max_batch_examples;
            engine.batching.max_batch_ids = max_batch_ids;
            engine.batching.merge_examples = merge_examples;
            engine.batching.max_queued_examples = max_queued_examples;
            engine.batching.max_queued_ids = max_queued_ids;
            engine.batching.max_queued_bytes = max_queued_bytes;
            GrpcServerOptions server;
            server.host = host;
            server.port = port;
            server.default_timeout = std::chrono::milliseconds(default_timeout_ms);
            server.max_message_bytes = max_message_bytes;
            server.connections = ConnectionLimitsFrom(connections);
            server.record.path = record_path;
            server.record.max_requests = record_requests;
            server.record.share = record_share;
            server.record.report = record_report;
            return std::make_unique<Server>(
                folder, ModelOptionsFrom(fbgemm_folder, plan, resident, threads), engine, server);
          }),
          py::kw_only(), py::arg("folder"), py::arg("fbgemm_folder"), py::arg("plan"),
          py::arg("resident"), py::arg("threads"), py::arg("sample_tolerance"),
          py::arg("max_batch_examples"), py::arg("max_batch_ids"), py::arg("merge_examples"),
          py::arg("max_queued_examples"), py::arg("max_queued_ids"), py::arg("max_queued_bytes"),
          py::arg("host"), py::arg("port"), py::arg("default_timeout_ms"),
          py::arg("max_message_bytes"), py::arg("connections"), py::arg("slow_request_ms") = 0.0,
          py::arg("record_path") = "", py::arg("record_requests") = RecorderOptions().max_requests,
          py::arg("record_share") = 1.0, py::arg("record_report") = py::none())
      .def_property_readonly("port", &Server::port)
      .def("stop", &Server::Stop, py::arg("timeout_seconds"))
      .def("snapshot", &Server::Snapshot)
      .def("recording", &Server::Recording)
      .def("wait_slow", &Server::WaitSlow, py::arg("timeout_seconds"));
}

void DefineLocalPredictor(py::module_& module) {
  py::class_<LocalPredictor>(module, "LocalPredictor")
      .def(py::init([](const std::string& folder, const std::string& fbgemm_folder,
                       const std::string& plan, bool resident, int threads) {
             return std::make_unique<LocalPredictor>(
                 folder, ModelOptionsFrom(fbgemm_folder, plan, resident, threads));
           }),
           py::kw_only(), py::arg("folder"), py::arg("fbgemm_folder"), py::arg("plan"),
           py::arg("resident"), py::arg("threads"))
      .def("get_model", &LocalPredictor::GetModel)
      .def("predict_merged", &LocalPredictor::PredictMerged, py::arg("requests"));
}

}  // namespace

PYBIND11_MODULE(_predictor, module) {
  DefineServer(module);
  DefineLocalPredictor(module);
  module.def("explain_bus_errors", &ExplainBusErrors);
  module.def("keep_freed_memory", &KeepFreedMemory);
  module.def(
      "verify_package",
      [](const std::string& folder) {
        RaiseIfFailed(Released([&] { return VerifyPackage(folder); }));
      },
      py::arg("folder"));
}

}  // namespace embershard
