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

#include "binding/errors.h"
#include "binding/served_model.h"
#include "grpc/serialized.h"
#include "grpc/server.h"
#include "package/package.h"

namespace embershard {
namespace {

namespace py = pybind11;

template <class T>
T ValueOrRaise(Result<T> result) {
  RaiseIfFailed(result.status());
  return std::move(*result);
}

std::shared_ptr<Engine> StartEngineOrRaise(const ServedModelOptions& options) {
  Result<std::shared_ptr<Engine>> engine = [&] {
    py::gil_scoped_release released;
    return StartEngine(options);
  }();
  return ValueOrRaise(std::move(engine));
}

// A package behind a port.
class Server {
 public:
  Server(const ServedModelOptions& model_options, const GrpcServerOptions& server_options)
      : engine_(StartEngineOrRaise(model_options)),
        server_(ValueOrRaise(GrpcServer::Start(engine_, server_options))) {}

  int port() const { return server_->port(); }

  void Stop(double timeout_seconds) {
    py::gil_scoped_release released;
    server_->Drain(std::chrono::milliseconds(static_cast<int64_t>(timeout_seconds * 1000)));
  }

  py::dict Counters() const {
    const EngineCounters counters = engine_->counters();
    py::dict named;
    named["requests_ok"] = counters.requests_ok;
    named["requests_refused"] = counters.requests_refused;
    named["requests_overloaded"] = counters.requests_overloaded;
    named["requests_expired"] = counters.requests_expired;
    named["requests_failed"] = counters.requests_failed;
    named["examples"] = counters.examples;
    named["batches"] = counters.batches;
    named["queued_examples"] = counters.queued_examples;
    return named;
  }

 private:
  std::shared_ptr<Engine> engine_;
  std::unique_ptr<GrpcServer> server_;
};

// A package in this process.
class LocalPredictor {
 public:
  explicit LocalPredictor(const ServedModelOptions& options)
      : engine_(StartEngineOrRaise(options)) {}

  py::bytes GetModel() const { return py::bytes(GetModelSerialized(*engine_)); }

  py::list PredictMerged(const std::vector<std::string>& requests) {
    std::vector<Result<std::string>> answers;
    {
      py::gil_scoped_release released;
      answers = PredictSerialized(engine_.get(), requests);
    }
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

ServedModelOptions ModelOptionsFrom(const std::string& folder, const std::string& fbgemm_folder,
                                    const std::string& plan, bool resident, int threads) {
  ServedModelOptions options;
  options.folder = folder;
  options.fbgemm_folder = fbgemm_folder;
  options.plan = plan;
  options.resident = resident;
  options.threads = threads;
  return options;
}

void DefineServer(py::module_& module) {
  py::class_<Server>(module, "Server")
      .def(py::init([](const std::string& folder, const std::string& fbgemm_folder,
                       const std::string& plan, bool resident, int threads,
                       size_t max_queued_examples, uint64_t max_queued_ids, const std::string& host,
                       int port, int64_t default_timeout_ms, int max_message_bytes) {
             ServedModelOptions model_options =
                 ModelOptionsFrom(folder, fbgemm_folder, plan, resident, threads);
             model_options.batching.max_queued_examples = max_queued_examples;
             model_options.batching.max_queued_ids = max_queued_ids;
             GrpcServerOptions server_options;
             server_options.host = host;
             server_options.port = port;
             server_options.default_timeout = std::chrono::milliseconds(default_timeout_ms);
             server_options.max_message_bytes = max_message_bytes;
             return std::make_unique<Server>(model_options, server_options);
           }),
           py::kw_only(), py::arg("folder"), py::arg("fbgemm_folder"), py::arg("plan"),
           py::arg("resident"), py::arg("threads"), py::arg("max_queued_examples"),
           py::arg("max_queued_ids"), py::arg("host"), py::arg("port"),
           py::arg("default_timeout_ms"), py::arg("max_message_bytes"))
      .def_property_readonly("port", &Server::port)
      .def("stop", &Server::Stop, py::arg("timeout_seconds"))
      .def("counters", &Server::Counters);
}

void DefineLocalPredictor(py::module_& module) {
  py::class_<LocalPredictor>(module, "LocalPredictor")
      .def(py::init([](const std::string& folder, const std::string& fbgemm_folder,
                       const std::string& plan, bool resident, int threads) {
             return std::make_unique<LocalPredictor>(
                 ModelOptionsFrom(folder, fbgemm_folder, plan, resident, threads));
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
  module.def(
      "verify_package",
      [](const std::string& folder) {
        const Status status = [&] {
          py::gil_scoped_release released;
          return VerifyPackage(folder);
        }();
        RaiseIfFailed(status);
      },
      py::arg("folder"));
}

}  // namespace embershard
