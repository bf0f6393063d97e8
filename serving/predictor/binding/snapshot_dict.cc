#include "binding/snapshot_dict.h"

#include <pybind11/stl.h>

#include "binding/errors.h"

namespace embershard {
namespace {

namespace py = pybind11;
using py::literals::operator""_a;

py::list Requests(const TelemetrySnapshot& telemetry) {
  py::list requests;
  const auto append = [&requests](const char* priority, const auto& counts) {
    for (size_t i = 0; i < kOutcomes; ++i) {
      const OutcomeName name = NameOf(static_cast<Outcome>(i));
      requests.append(py::dict("code"_a = name.code, "reason"_a = name.reason,
                               "priority"_a = priority, "count"_a = counts[i]));
    }
  };
  append("interactive", telemetry.interactive_calls);
  append("batch", telemetry.batch_calls);
  return requests;
}

py::dict Histograms(const TelemetrySnapshot& telemetry) {
  py::dict histograms;
  for (const auto& [name, values] : telemetry.histograms) {
    histograms[name] =
        py::dict("bounds"_a = values.bounds, "counts"_a = values.counts, "sum"_a = values.sum);
  }
  return histograms;
}

py::dict UnknownIdCounts(const EngineSnapshot& snapshot) {
  py::dict unknown_ids;
  for (size_t i = 0; i < snapshot.sparse_inputs.size(); ++i) {
    unknown_ids[ToPythonText(snapshot.sparse_inputs[i])] = snapshot.telemetry.unknown_ids[i];
  }
  return unknown_ids;
}

py::dict ShadowCounts(const TelemetrySnapshot& telemetry) {
  py::dict dropped;
  for (size_t i = 0; i < kShadowDrops; ++i) {
    dropped[NameOf(static_cast<ShadowDrop>(i))] = telemetry.shadow_dropped[i];
  }
  return py::dict("sent"_a = telemetry.shadow_sent, "dropped"_a = dropped,
                  "failed"_a = telemetry.shadow_failed,
                  "batch_seconds"_a = telemetry.shadow_batch_seconds,
                  "cpu_seconds"_a = telemetry.shadow_cpu_seconds);
}

py::list Devices(const EngineSnapshot& snapshot) {
  py::list devices;
  for (const DeviceLoad& load : snapshot.devices) {
    devices.append(py::dict("name"_a = ToPythonText(load.name), "table_bytes"_a = load.table_bytes,
                            "lookup_seconds"_a = static_cast<double>(load.lookup_ns) / 1e9,
                            "batches"_a = load.batches, "rows"_a = load.rows));
  }
  return devices;
}

}  // namespace

py::dict ToDict(const EngineSnapshot& snapshot) {
  const TelemetrySnapshot& telemetry = snapshot.telemetry;
  const QueueSize& queued = snapshot.queued;
  return py::dict(
      "model"_a = ToPythonText(snapshot.model), "version"_a = snapshot.version,
      "start_unix_seconds"_a = telemetry.start_unix_seconds,
      "max_batch_examples"_a = snapshot.max_batch_examples, "slots"_a = snapshot.slots,
      "requests"_a = Requests(telemetry), "histograms"_a = Histograms(telemetry),
      "examples"_a = telemetry.examples, "batches"_a = telemetry.batches,
      "reruns"_a = telemetry.reruns, "compute_seconds"_a = telemetry.compute_seconds,
      "unknown_ids"_a = UnknownIdCounts(snapshot), "bytes_received"_a = telemetry.bytes_received,
      "bytes_sent"_a = telemetry.bytes_sent,
      "queued"_a = py::dict("requests"_a = queued.requests, "examples"_a = queued.examples,
                            "ids"_a = queued.ids, "bytes"_a = queued.bytes),
      "in_flight"_a = telemetry.in_flight, "devices"_a = Devices(snapshot),
      "shadow"_a = ShadowCounts(telemetry));
}

py::dict UnservedToDict(const TelemetrySnapshot& telemetry) {
  return py::dict(
      "unserved"_a = Requests(telemetry), "open_streams"_a = telemetry.open_streams,
      "in_flight"_a = telemetry.in_flight, "bytes_received"_a = telemetry.bytes_received,
      "start_unix_seconds"_a = telemetry.start_unix_seconds,
      "slow"_a = py::dict("seen"_a = telemetry.slow_seen, "dropped"_a = telemetry.slow_dropped));
}

const char* NameOf(VersionState state) {
  switch (state) {
    case VersionState::kUnloaded:
      return "unloaded";
    case VersionState::kLoading:
      return "loading";
    case VersionState::kReady:
      return "ready";
    case VersionState::kFailed:
      break;
  }
  return "failed";
}

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

}  // namespace embershard
