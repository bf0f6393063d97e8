// Only embershard/bench/run.py uses this extension module. Calls release the GIL while they wait.

#include <grpcpp/support/slice.h>
#include <pybind11/chrono.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/grpc_load_run.h"
#include "bench/grpc_transport.h"
#include "bench/load_options.h"
#include "bench/tally.h"

namespace embershard::bench {
namespace {

namespace py = pybind11;

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// Returns [(low, high, count)] in nanoseconds.
py::list BucketsOf(const Histogram& histogram) {
  py::list buckets;
  for (const Histogram::Bucket& bucket : histogram.Buckets()) {
    buckets.append(py::make_tuple(bucket.low, bucket.high, bucket.count));
  }
  return buckets;
}

py::dict CountsDict(const Tally& tally) {
  py::dict counts;
  py::dict codes, messages;
  for (size_t code = 0; code < Tally::kCodes; ++code) {
    if (tally.by_code[code] == 0) continue;
    codes[py::int_(code)] = tally.by_code[code];
    // A server may send bytes that are not UTF-8.
    const std::string& message = tally.messages[code];
    messages[py::int_(code)] = py::reinterpret_steal<py::str>(
        PyUnicode_DecodeUTF8(message.data(), static_cast<Py_ssize_t>(message.size()), "replace"));
  }
  counts["requests"] = tally.requests;
  counts["by_code"] = codes;
  counts["messages"] = messages;
  counts["examples_ok"] = tally.examples_ok;
  counts["answer_bytes"] = tally.answer_bytes;
  counts["latency"] = BucketsOf(tally.latency);
  counts["refusal"] = BucketsOf(tally.refusal);
  counts["lag"] = BucketsOf(tally.lag);
  counts["own_lag"] = BucketsOf(tally.own_lag);
  counts["expired_without_call"] = tally.expired_without_call;
  counts["expired_before_send"] = tally.expired_before_send;
  counts["expired_sent_late"] = tally.expired_sent_late;
  counts["last_scheduled_seconds"] = Seconds(tally.last_scheduled);
  counts["last_ok_seconds"] = Seconds(tally.last_ok);
  return counts;
}

RequestPool PoolOf(const std::vector<std::pair<std::string, uint32_t>>& requests) {
  RequestPool pool;
  pool.reserve(requests.size());
  for (const auto& [bytes, examples] : requests) {
    const grpc::Slice slice(bytes);
    pool.push_back({.message = grpc::ByteBuffer(&slice, 1), .examples = examples});
  }
  return pool;
}

// Bytes or None for each request of the pool.
py::list Answers(GrpcLoadRun& run) {
  py::list answers;
  for (const std::optional<grpc::ByteBuffer>& answer : run.TakeAnswers()) {
    std::vector<grpc::Slice> slices;
    if (!answer.has_value() || !answer->Dump(&slices).ok()) {
      answers.append(py::none());
      continue;
    }
    std::string bytes;
    bytes.reserve(answer->Length());
    for (const grpc::Slice& slice : slices) {
      bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    }
    answers.append(py::bytes(bytes));
  }
  return answers;
}

// Durations are floats in seconds.
void DefineLoadOptions(py::module_& module) {
  py::class_<LoadTls>(module, "LoadTls")
      .def(py::init<std::string, std::string, std::string, std::string>(), py::arg("ca"),
           py::arg("certificate"), py::arg("key"), py::arg("server_name"));
  py::class_<LoadOptions>(module, "LoadOptions")
      .def(py::init<>())
      .def_readwrite("target", &LoadOptions::target)
      .def_readwrite("method", &LoadOptions::method)
      .def_readwrite("tls", &LoadOptions::tls)
      .def_readwrite("token", &LoadOptions::token)
      .def_readwrite("streams", &LoadOptions::streams)
      .def_readwrite("times", &LoadOptions::times)
      .def_readwrite("times_period", &LoadOptions::times_period)
      .def_readwrite("in_flight", &LoadOptions::in_flight)
      .def_readwrite("warmup", &LoadOptions::warmup)
      .def_readwrite("measure", &LoadOptions::measure)
      .def_readwrite("max_requests", &LoadOptions::max_requests)
      .def_readwrite("timeout", &LoadOptions::timeout)
      .def_readwrite("lanes", &LoadOptions::lanes)
      .def_readwrite("connections_per_lane", &LoadOptions::connections_per_lane)
      .def_readwrite("keep_answers", &LoadOptions::keep_answers);
}

void DefineLoadRun(py::module_& module) {
  py::class_<GrpcLoadRun>(module, "LoadRun")
      .def(py::init([](const LoadOptions& options,
                       const std::vector<std::pair<std::string, uint32_t>>& requests) {
             RequestPool pool = PoolOf(requests);
             py::gil_scoped_release released;
             return std::make_unique<GrpcLoadRun>(options, std::move(pool));
           }),
           py::arg("options"), py::arg("requests"))
      .def("wait", &GrpcLoadRun::WaitFor, py::call_guard<py::gil_scoped_release>(),
           py::arg("timeout_seconds"))
      .def("stop", &GrpcLoadRun::Stop, py::call_guard<py::gil_scoped_release>())
      .def("counts", [](const GrpcLoadRun& run) { return CountsDict(run.tally()); })
      .def("take_answers", &Answers)
      .def("busiest_thread_share", &GrpcLoadRun::busiest_thread_share);
}

}  // namespace

PYBIND11_MODULE(_load, module) {
  DefineLoadOptions(module);
  DefineLoadRun(module);
}

}  // namespace embershard::bench
