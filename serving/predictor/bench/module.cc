// The extension module embershard.bench._load. embershard/bench/_native.py is its only
// caller. No call keeps the GIL while it waits.

#include <grpcpp/support/slice.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/grpc_carrier.h"
#include "bench/grpc_load_run.h"
#include "bench/histogram.h"
#include "bench/load_options.h"
#include "bench/tally.h"

namespace embershard::bench {
namespace {

namespace py = pybind11;

Clock::duration FromSeconds(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// [(low, high, count)], in nanoseconds.
py::list BucketsOf(const Histogram& histogram) {
  py::list buckets;
  for (const Histogram::Bucket& each : histogram.Buckets()) {
    buckets.append(py::make_tuple(each.low, each.high, each.count));
  }
  return buckets;
}

py::dict Named(const Tally& tally) {
  py::dict named;
  py::dict codes, messages;
  for (size_t code = 0; code < Tally::kCodes; ++code) {
    if (tally.by_code()[code] == 0) continue;
    codes[py::int_(code)] = tally.by_code()[code];
    // A server may say what is no text.
    const std::string& message = tally.messages()[code];
    messages[py::int_(code)] = py::reinterpret_steal<py::str>(
        PyUnicode_DecodeUTF8(message.data(), static_cast<Py_ssize_t>(message.size()), "replace"));
  }
  named["requests"] = tally.requests();
  named["by_code"] = codes;
  named["messages"] = messages;
  named["examples_ok"] = tally.examples_ok();
  named["answer_bytes"] = tally.answer_bytes();
  named["latency"] = BucketsOf(tally.latency());
  named["refusal"] = BucketsOf(tally.refusal());
  named["lag"] = BucketsOf(tally.lag());
  named["last_scheduled_seconds"] = Seconds(tally.last_scheduled());
  named["last_ok_seconds"] = Seconds(tally.last_ok());
  return named;
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

// [ca, certificate, key, server_name], as LoadTls has them.
std::optional<LoadTls> TlsFrom(const std::optional<std::vector<std::string>>& given) {
  if (!given.has_value()) return {};
  return LoadTls{.ca = given->at(0),
                 .certificate = given->at(1),
                 .key = given->at(2),
                 .server_name = given->at(3)};
}

std::vector<std::chrono::nanoseconds> TimesFrom(const std::vector<double>& seconds) {
  std::vector<std::chrono::nanoseconds> times;
  times.reserve(seconds.size());
  for (const double each : seconds) times.push_back(FromSeconds(each));
  return times;
}

// [bytes or None], in the order of the pool.
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

void DefineLoadRun(py::module_& module) {
  py::class_<GrpcLoadRun>(module, "LoadRun")
      .def(py::init([](const std::vector<std::pair<std::string, uint32_t>>& requests,
                       const std::string& target, const std::string& method, size_t streams,
                       const std::optional<std::vector<std::string>>& tls, const std::string& token,
                       double rate, const std::vector<double>& times, double times_period_seconds,
                       size_t in_flight, double warmup_seconds, double measure_seconds,
                       uint64_t max_requests, double timeout_seconds, size_t lanes,
                       size_t connections_per_lane, uint64_t seed, bool keep_answers) {
             LoadOptions options;
             options.target = target;
             options.method = method;
             options.streams = streams;
             options.tls = TlsFrom(tls);
             options.token = token;
             options.rate_per_second = rate;
             options.times = TimesFrom(times);
             options.times_period = FromSeconds(times_period_seconds);
             options.in_flight = in_flight;
             options.warmup = FromSeconds(warmup_seconds);
             options.measure = FromSeconds(measure_seconds);
             options.max_requests = max_requests;
             options.timeout = FromSeconds(timeout_seconds);
             options.lanes = lanes;
             options.connections_per_lane = connections_per_lane;
             options.seed = seed;
             options.keep_answers = keep_answers;
             RequestPool pool = PoolOf(requests);
             py::gil_scoped_release released;
             return std::make_unique<GrpcLoadRun>(options, std::move(pool));
           }),
           py::kw_only(), py::arg("requests"), py::arg("target"), py::arg("method"),
           py::arg("streams"), py::arg("tls"), py::arg("token"), py::arg("rate"), py::arg("times"),
           py::arg("times_period_seconds"), py::arg("in_flight"), py::arg("warmup_seconds"),
           py::arg("measure_seconds"), py::arg("max_requests"), py::arg("timeout_seconds"),
           py::arg("lanes"), py::arg("connections_per_lane"), py::arg("seed"),
           py::arg("keep_answers"))
      .def(
          "wait",
          [](GrpcLoadRun& run, double seconds) { return run.WaitFor(FromSeconds(seconds)); },
          py::call_guard<py::gil_scoped_release>(), py::arg("timeout_seconds"))
      .def("stop", &GrpcLoadRun::Stop, py::call_guard<py::gil_scoped_release>())
      .def("counts", [](const GrpcLoadRun& run) { return Named(run.tally()); })
      .def("take_answers", &Answers)
      .def("busiest_thread_share", &GrpcLoadRun::busiest_thread_share);
}

}  // namespace

PYBIND11_MODULE(_load, module) {
  DefineLoadRun(module);
  module.def(
      "buckets",
      [](const std::vector<int64_t>& values) {
        Histogram histogram;
        for (const int64_t value : values) histogram.Add(value);
        return BucketsOf(histogram);
      },
      py::arg("values"));
}

}  // namespace embershard::bench
