#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "binding/module.h"

namespace embershard::binding {
namespace {

constexpr char kCounter[] = "counter";
constexpr char kGauge[] = "gauge";
constexpr char kUntyped[] = "untyped";  // Counters with Triton's names, which lack "_total".

struct HistogramMetric {
  const char* field;  // Name in TelemetrySnapshot::histograms.
  const char* name;
  const char* help;
};

constexpr HistogramMetric kHistograms[] = {
    {"request_seconds", "embershard_request_seconds",
     "From arrival to answer, of answered requests."},
    {"queue_seconds", "embershard_queue_seconds",
     "Wait for a batch, of requests that ran, without shadow traffic."},
    {"lookup_seconds", "embershard_lookup_seconds", "Lookups of a batch."},
    {"dense_seconds", "embershard_dense_seconds", "Dense program of a batch."},
    {"batch_examples", "embershard_batch_examples", "Examples in a batch."},
    {"batch_requests", "embershard_batch_requests", "Requests in a batch."},
    {"batch_fill", "embershard_batch_fill_ratio",
     "Examples in a batch, as a share of the most that are merged; at most 1."},
    {"request_ids", "embershard_request_ids", "Ids in a request that passed the checks."},
    {"request_examples", "embershard_request_examples",
     "Examples in a request that passed the checks."},
    {"shadow_difference", "embershard_shadow_difference",
     "Largest difference between a score of a copy and of its request, of answered copies."},
};

const HistogramSnapshot& Histogram(const TelemetrySnapshot& telemetry, std::string_view field) {
  const auto& all = telemetry.histograms;
  return std::ranges::find(all, field, &NamedHistogram::name)->values;
}

double Microseconds(double seconds) { return std::round(1e6 * seconds); }

class ListBuilder {
 public:
  explicit ListBuilder(const ServerMetrics& server) : server_(server) {
    for (const VersionMetrics& version : server.versions) {
      py::dict labels;
      labels["model"] = ToPythonText(version.engine.model);
      labels["version"] = std::to_string(version.engine.version);
      labels_.push_back(std::move(labels));
    }
  }

  py::list Build() && {
    AddVersions();
    AddRequests();
    AddHistograms();
    AddQueue();
    AddDevices();
    AddShadow();
    AddServer();
    AddTriton();
    return std::move(list_);
  }

 private:
  using Family = const char*;

  void Add(Family name, const char* help, const char* kind, py::dict labels, py::object value) {
    list_.append(py::make_tuple(name, help, kind, std::move(labels), std::move(value)));
  }

  void AddServerWide(Family name, const char* help, const char* kind, double value) {
    Add(name, help, kind, py::dict(), py::float_(value));
  }

  // Adds a value for each version. `value_of` returns it for a VersionMetrics.
  template <class ValueOf>
  void AddPerVersion(Family name, const char* help, const char* kind, ValueOf value_of) {
    for (size_t i = 0; i < labels_.size(); ++i) {
      Add(name, help, kind, labels_[i],
          py::float_(static_cast<double>(value_of(server_.versions[i]))));
    }
  }
  template <class ValueOf>
  void AddFromTelemetry(Family name, const char* help, const char* kind, ValueOf value_of) {
    AddPerVersion(name, help, kind, [&](const VersionMetrics& version) {
      return value_of(version.engine.telemetry);
    });
  }

  // Adds several values for each version, which differ in one more label. `list_values` calls its
  // second argument with each value of the label and its count.
  template <class ListValues>
  void AddWithLabel(Family name, const char* help, const char* kind, const char* label,
                    ListValues list_values) {
    for (size_t i = 0; i < labels_.size(); ++i) {
      list_values(server_.versions[i].engine, [&](const std::string& value, auto count) {
        py::dict labels = labels_[i].attr("copy")();
        labels[label] = ToPythonText(value);
        Add(name, help, kind, std::move(labels), py::float_(static_cast<double>(count)));
      });
    }
  }

  void AddOutcomes(Family name, const char* help, const py::dict& version_labels,
                   const TelemetrySnapshot& telemetry) {
    const auto add = [&](const char* priority, const auto& counts) {
      for (size_t i = 0; i < kOutcomes; ++i) {
        const OutcomeName outcome = NameOf(static_cast<Outcome>(i));
        py::dict labels = version_labels.attr("copy")();
        labels["code"] = outcome.code;
        labels["reason"] = outcome.reason;
        labels["priority"] = priority;
        Add(name, help, kCounter, std::move(labels), py::float_(static_cast<double>(counts[i])));
      }
    };
    add("interactive", telemetry.interactive_calls);
    add("background", telemetry.background_calls);
  }

  void AddVersions() {
    AddPerVersion("embershard_served_version", "1 for each version of a model that is served.",
                  "info", [](const auto&) { return 1; });
    AddPerVersion("embershard_default_version",
                  "1 if the version answers requests that name no version, else 0.", kGauge,
                  [](const auto& version) { return version.is_default; });
    AddFromTelemetry("embershard_start_time_seconds",
                     "When the server began to count, in seconds since 1970.", kGauge,
                     [](const auto& telemetry) { return telemetry.start_unix_seconds; });
    AddPerVersion("embershard_batch_examples_max", "Most examples that a batch may hold.", kGauge,
                  [](const auto& version) { return version.engine.max_batch_examples; });
    AddPerVersion("embershard_slots", "Batches that may run at once.", kGauge,
                  [](const auto& version) { return version.engine.slots; });
  }

  void AddRequests() {
    for (size_t i = 0; i < labels_.size(); ++i) {
      AddOutcomes("embershard_requests", "Requests that ended, by gRPC code, reason and priority.",
                  labels_[i], server_.versions[i].engine.telemetry);
    }
    AddOutcomes(
        "embershard_unserved_requests",
        "Requests for a model, version or label that is not served, by gRPC code and reason.",
        py::dict(), server_.unserved);
    AddFromTelemetry("embershard_in_flight_requests",
                     "Requests that have arrived and are not answered.", kGauge,
                     [](const auto& telemetry) { return telemetry.in_flight; });
    AddFromTelemetry("embershard_examples", "Examples of answered requests.", kCounter,
                     [](const auto& telemetry) { return telemetry.examples; });
    AddFromTelemetry("embershard_batches", "Batches that ran.", kCounter,
                     [](const auto& telemetry) { return telemetry.batches; });
    AddFromTelemetry("embershard_batch_reruns",
                     "Runs of parts of a batch after the model failed on the whole batch.",
                     kCounter, [](const auto& telemetry) { return telemetry.reruns; });
    AddWithLabel("embershard_unknown_ids", "Ids that the model does not know, by sparse input.",
                 kCounter, "feature", [](const EngineSnapshot& engine, auto add) {
                   for (size_t i = 0; i < engine.sparse_inputs.size(); ++i) {
                     add(engine.sparse_inputs[i], engine.telemetry.unknown_ids[i]);
                   }
                 });
    AddFromTelemetry("embershard_received_bytes", "Serialized size of requests.", kCounter,
                     [](const auto& telemetry) { return telemetry.bytes_received; });
    AddFromTelemetry("embershard_sent_bytes", "Serialized size of answers.", kCounter,
                     [](const auto& telemetry) { return telemetry.bytes_sent; });
  }

  void AddHistograms() {
    for (const auto& [field, name, help] : kHistograms) {
      for (size_t i = 0; i < labels_.size(); ++i) {
        const auto& values = Histogram(server_.versions[i].engine.telemetry, field);
        Add(name, help, "histogram", labels_[i],
            py::make_tuple(values.bounds, values.counts, values.sum));
      }
    }
  }

  void AddQueue() {
    AddPerVersion("embershard_queued_requests", "Requests waiting for a batch.", kGauge,
                  [](const auto& version) { return version.engine.queued.requests; });
    AddPerVersion("embershard_queued_examples", "Examples waiting for a batch.", kGauge,
                  [](const auto& version) { return version.engine.queued.work.examples; });
    AddPerVersion("embershard_queued_ids", "Ids waiting for a batch.", kGauge,
                  [](const auto& version) { return version.engine.queued.work.ids; });
    AddPerVersion("embershard_queued_bytes", "Memory of the messages waiting for a batch.", kGauge,
                  [](const auto& version) { return version.engine.queued.bytes; });
  }

  void AddDevices() {
    const auto add = [this](Family name, const char* help, const char* kind, auto value_of) {
      AddWithLabel(name, help, kind, "device", [&value_of](const EngineSnapshot& engine, auto row) {
        for (const DeviceLoad& load : engine.devices) row(load.name, value_of(load));
      });
    };
    add("embershard_table_bytes", "Table rows on a device.", kGauge,
        [](const DeviceLoad& load) { return load.table_bytes; });
    add("embershard_device_lookup_seconds", "Time a device spent on lookups.", kCounter,
        [](const DeviceLoad& load) { return static_cast<double>(load.lookup_ns) / 1e9; });
    add("embershard_device_batches", "Batches that a device looked rows up for.", kCounter,
        [](const DeviceLoad& load) { return load.batches; });
    add("embershard_device_rows", "Rows that a device looked up.", kCounter,
        [](const DeviceLoad& load) { return load.rows; });
    add("embershard_device_dense_seconds", "Time a GPU spent on the dense program.", kCounter,
        [](const DeviceLoad& load) { return static_cast<double>(load.dense_ns) / 1e9; });
    add("embershard_device_copied_bytes", "Bytes copied to and from a GPU.", kCounter,
        [](const DeviceLoad& load) { return load.copied_bytes; });
    add("embershard_device_memory_bytes", "Memory of a GPU that rows and batches hold.", kGauge,
        [](const DeviceLoad& load) { return load.memory_bytes; });
  }

  void AddShadow() {
    AddFromTelemetry("embershard_shadow_requests",
                     "Copies of requests that this version received as the shadow of another.",
                     kCounter, [](const auto& telemetry) { return telemetry.shadow_sent; });
    AddWithLabel("embershard_shadow_dropped",
                 "Requests in the sample that were not copied to this version, by reason.",
                 kCounter, "reason", [](const EngineSnapshot& engine, auto add) {
                   for (size_t i = 0; i < kShadowDrops; ++i) {
                     add(NameOf(static_cast<ShadowDrop>(i)), engine.telemetry.shadow_dropped[i]);
                   }
                 });
    AddFromTelemetry(
        "embershard_shadow_compared",
        "Copies whose scores were compared with those of the request.", kCounter,
        [](const TelemetrySnapshot& telemetry) {
          uint64_t compared = 0;
          for (const uint64_t count : Histogram(telemetry, "shadow_difference").counts) {
            compared += count;
          }
          return compared;
        });
    AddFromTelemetry("embershard_shadow_failed", "Copies that this version did not answer.",
                     kCounter, [](const auto& telemetry) { return telemetry.shadow_failed; });
    AddFromTelemetry("embershard_shadow_batch_seconds",
                     "Time in which batches of copies ran, while this version was only a shadow.",
                     kCounter,
                     [](const auto& telemetry) { return telemetry.shadow_batch_seconds; });
    AddFromTelemetry("embershard_shadow_cpu_seconds",
                     "CPU time of batches of copies, while this version was only a shadow.",
                     kCounter, [](const auto& telemetry) { return telemetry.shadow_cpu_seconds; });
  }

  void AddServer() {
    const auto counter = [this](Family name, const char* help, uint64_t count) {
      AddServerWide(name, help, kCounter, static_cast<double>(count));
    };
    AddServerWide("embershard_open_streams", "PredictStream calls that are open.", kGauge,
                  static_cast<double>(server_.unserved.open_streams));
    counter("embershard_connections_refused",
            "Connections closed on arrival, because the maximum was open.",
            server_.connections_refused);
    counter("embershard_strangers_reset",
            "Connections without an authenticated call that were reset, because their budget was "
            "used up.",
            server_.strangers_reset);
    counter("embershard_slow_requests", "Requests above the threshold of the slow log.",
            server_.unserved.slow_seen);
    counter("embershard_slow_requests_dropped", "Slow requests that the log had no room for.",
            server_.unserved.slow_dropped);
    counter("embershard_unauthenticated_calls",
            "Calls without the server's token. They do not count as requests of a model.",
            server_.security.refused_calls);
    AddServerWide(
        "embershard_certificate_expiry_time_seconds",
        "When the certificate of new connections expires, in seconds since 1970; 0 without "
        "TLS.",
        kGauge, static_cast<double>(server_.security.certificate_expires_unix_seconds));
  }

  void AddTriton() {
    AddFromTelemetry("nv_inference_request_success", "Requests answered.", kUntyped,
                     [](const auto& telemetry) { return telemetry.Count(Outcome::kOk); });
    AddWithLabel("nv_inference_request_failure", "Requests not answered, by Triton's reasons.",
                 kUntyped, "reason", [](const EngineSnapshot& engine, auto add) {
                   std::map<std::string, uint64_t> counts;
                   for (size_t i = 0; i < kOutcomes; ++i) {
                     const auto outcome = static_cast<Outcome>(i);
                     if (outcome == Outcome::kOk) continue;
                     counts[NameOf(outcome).triton] += engine.telemetry.Count(outcome);
                   }
                   for (const auto& [reason, count] : counts) add(reason, count);
                 });
    AddFromTelemetry("nv_inference_count", "Examples of answered requests.", kUntyped,
                     [](const auto& telemetry) { return telemetry.examples; });
    AddFromTelemetry("nv_inference_exec_count", "Batches that ran.", kUntyped,
                     [](const auto& telemetry) { return telemetry.batches; });
    const auto sum = [](const char* field) {
      return [field](const TelemetrySnapshot& telemetry) {
        return Microseconds(Histogram(telemetry, field).sum);
      };
    };
    AddFromTelemetry("nv_inference_request_duration_us",
                     "From arrival to answer, summed over answered requests.", kUntyped,
                     sum("request_seconds"));
    AddFromTelemetry("nv_inference_queue_duration_us",
                     "Wait for a batch, summed over requests that ran.", kUntyped,
                     sum("queue_seconds"));
    AddFromTelemetry("nv_inference_compute_infer_duration_us",
                     "Lookups and dense program of its batch, summed over answered requests.",
                     kUntyped,
                     [](const auto& telemetry) { return Microseconds(telemetry.compute_seconds); });
    AddPerVersion("nv_inference_pending_request_count", "Requests waiting for a batch.", kGauge,
                  [](const auto& version) { return version.engine.queued.requests; });
  }

  const ServerMetrics& server_;
  std::vector<py::dict> labels_;  // Labels of each version.
  py::list list_;
};

}  // namespace

py::list MetricList(const ServerMetrics& server) { return ListBuilder(server).Build(); }

py::list ExampleMetricList() {
  EngineSnapshot engine;
  engine.sparse_inputs = {""};
  engine.devices.emplace_back();
  engine.telemetry = Telemetry({.sparse_inputs = 1}).Read();
  ServerMetrics server;
  server.versions.push_back({.engine = std::move(engine)});
  return MetricList(server);
}

}  // namespace embershard::binding
