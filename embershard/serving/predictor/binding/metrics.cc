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
constexpr char kUntyped[] = "untyped";  // A counter whose name, Triton's, has no _total.

struct HistogramMetric {
  const char* field;  // Of TelemetrySnapshot::histograms.
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
     "Largest difference of a score of a copy from the one given, of copies answered."},
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

  void OfServer(Family name, const char* help, const char* kind, double value) {
    Add(name, help, kind, py::dict(), py::float_(value));
  }

  // `of`: the value, from a VersionMetrics.
  template <class Of>
  void Each(Family name, const char* help, const char* kind, Of of) {
    for (size_t i = 0; i < labels_.size(); ++i) {
      Add(name, help, kind, labels_[i], py::float_(static_cast<double>(of(server_.versions[i]))));
    }
  }
  template <class Of>
  void OfTelemetry(Family name, const char* help, const char* kind, Of of) {
    Each(name, help, kind, [&](const VersionMetrics& each) { return of(each.engine.telemetry); });
  }

  // One more label. `rows`: calls its argument with each value of the label and what is counted.
  template <class Rows>
  void EachOf(Family name, const char* help, const char* kind, const char* label, Rows rows) {
    for (size_t i = 0; i < labels_.size(); ++i) {
      rows(server_.versions[i].engine, [&](const std::string& value, auto count) {
        py::dict labels = labels_[i].attr("copy")();
        labels[label] = ToPythonText(value);
        Add(name, help, kind, std::move(labels), py::float_(static_cast<double>(count)));
      });
    }
  }

  void AddOutcomes(Family name, const char* help, const py::dict& of,
                   const TelemetrySnapshot& telemetry) {
    const auto add = [&](const char* priority, const auto& counts) {
      for (size_t i = 0; i < kOutcomes; ++i) {
        const OutcomeName outcome = NameOf(static_cast<Outcome>(i));
        py::dict labels = of.attr("copy")();
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
    Each("embershard_served_version", "1 for each version of a model that is served.", "info",
         [](const auto&) { return 1; });
    Each("embershard_default_version",
         "1 if the version answers requests that name no version, else 0.", kGauge,
         [](const auto& each) { return each.is_default; });
    OfTelemetry("embershard_start_time_seconds",
                "When the server began to count, in seconds since 1970.", kGauge,
                [](const auto& each) { return each.start_unix_seconds; });
    Each("embershard_batch_examples_max", "Most examples that a batch may hold.", kGauge,
         [](const auto& each) { return each.engine.max_batch_examples; });
    Each("embershard_slots", "Batches that may run at once.", kGauge,
         [](const auto& each) { return each.engine.slots; });
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
    OfTelemetry("embershard_in_flight_requests", "Requests that have arrived and are not answered.",
                kGauge, [](const auto& each) { return each.in_flight; });
    OfTelemetry("embershard_examples", "Examples of answered requests.", kCounter,
                [](const auto& each) { return each.examples; });
    OfTelemetry("embershard_batches", "Batches that ran.", kCounter,
                [](const auto& each) { return each.batches; });
    OfTelemetry("embershard_batch_reruns",
                "Runs of parts of batches for which the model had failed.", kCounter,
                [](const auto& each) { return each.reruns; });
    EachOf("embershard_unknown_ids", "Ids that the model does not know, by sparse input.", kCounter,
           "feature", [](const EngineSnapshot& engine, auto add) {
             for (size_t i = 0; i < engine.sparse_inputs.size(); ++i) {
               add(engine.sparse_inputs[i], engine.telemetry.unknown_ids[i]);
             }
           });
    OfTelemetry("embershard_received_bytes", "Serialized size of requests.", kCounter,
                [](const auto& each) { return each.bytes_received; });
    OfTelemetry("embershard_sent_bytes", "Serialized size of answers.", kCounter,
                [](const auto& each) { return each.bytes_sent; });
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
    Each("embershard_queued_requests", "Requests waiting for a batch.", kGauge,
         [](const auto& each) { return each.engine.queued.requests; });
    Each("embershard_queued_examples", "Examples waiting for a batch.", kGauge,
         [](const auto& each) { return each.engine.queued.work.examples; });
    Each("embershard_queued_ids", "Ids waiting for a batch.", kGauge,
         [](const auto& each) { return each.engine.queued.work.ids; });
    Each("embershard_queued_bytes", "Memory of the messages waiting for a batch.", kGauge,
         [](const auto& each) { return each.engine.queued.bytes; });
  }

  void AddDevices() {
    const auto add = [this](Family name, const char* help, const char* kind, auto of) {
      EachOf(name, help, kind, "device", [&of](const EngineSnapshot& engine, auto row) {
        for (const DeviceLoad& load : engine.devices) row(load.name, of(load));
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
    OfTelemetry("embershard_shadow_requests",
                "Copies of requests that this version got as the shadow of another.", kCounter,
                [](const auto& each) { return each.shadow_sent; });
    EachOf("embershard_shadow_dropped",
           "Requests in the sample that were not copied to it, by reason.", kCounter, "reason",
           [](const EngineSnapshot& engine, auto add) {
             for (size_t i = 0; i < kShadowDrops; ++i) {
               add(NameOf(static_cast<ShadowDrop>(i)), engine.telemetry.shadow_dropped[i]);
             }
           });
    OfTelemetry("embershard_shadow_compared",
                "Of the copies, those whose scores were compared with the ones given.", kCounter,
                [](const TelemetrySnapshot& each) {
                  uint64_t compared = 0;
                  for (const uint64_t count : Histogram(each, "shadow_difference").counts) {
                    compared += count;
                  }
                  return compared;
                });
    OfTelemetry("embershard_shadow_failed", "Of the copies, those that it did not answer.",
                kCounter, [](const auto& each) { return each.shadow_failed; });
    OfTelemetry("embershard_shadow_batch_seconds",
                "Time for which batches of copies were under way, where it is only a shadow.",
                kCounter, [](const auto& each) { return each.shadow_batch_seconds; });
    OfTelemetry("embershard_shadow_cpu_seconds",
                "Of this time, that for which their thread had a processor.", kCounter,
                [](const auto& each) { return each.shadow_cpu_seconds; });
  }

  void AddServer() {
    const auto counter = [this](Family name, const char* help, uint64_t count) {
      OfServer(name, help, kCounter, static_cast<double>(count));
    };
    OfServer("embershard_open_streams", "PredictStream calls that are open.", kGauge,
             static_cast<double>(server_.unserved.open_streams));
    counter("embershard_connections_refused",
            "Connections closed on arrival: as many as may be were open.",
            server_.connections_refused);
    counter("embershard_strangers_reset",
            "Connections without an authenticated call that were reset: their budget was used up.",
            server_.strangers_reset);
    counter("embershard_slow_requests", "Requests above the threshold of the slow log.",
            server_.unserved.slow_seen);
    counter("embershard_slow_requests_dropped", "Of these, those that the log had no room for.",
            server_.unserved.slow_dropped);
    counter("embershard_unauthenticated_calls",
            "Calls without the server's token. They are no requests of a model.",
            server_.security.refused_calls);
    OfServer("embershard_certificate_expiry_time_seconds",
             "When the certificate of new connections expires, in seconds since 1970; 0 without "
             "TLS.",
             kGauge, static_cast<double>(server_.security.certificate_expires_unix_seconds));
  }

  void AddTriton() {
    OfTelemetry("nv_inference_request_success", "Requests answered.", kUntyped,
                [](const auto& each) { return each.Count(Outcome::kOk); });
    EachOf("nv_inference_request_failure", "Requests not answered, by Triton's reasons.", kUntyped,
           "reason", [](const EngineSnapshot& engine, auto add) {
             std::map<std::string, uint64_t> counts;
             for (size_t i = 0; i < kOutcomes; ++i) {
               const auto outcome = static_cast<Outcome>(i);
               if (outcome == Outcome::kOk) continue;
               counts[NameOf(outcome).triton] += engine.telemetry.Count(outcome);
             }
             for (const auto& [reason, count] : counts) add(reason, count);
           });
    OfTelemetry("nv_inference_count", "Examples of answered requests.", kUntyped,
                [](const auto& each) { return each.examples; });
    OfTelemetry("nv_inference_exec_count", "Batches that ran.", kUntyped,
                [](const auto& each) { return each.batches; });
    const auto sum = [](const char* field) {
      return [field](const TelemetrySnapshot& each) {
        return Microseconds(Histogram(each, field).sum);
      };
    };
    OfTelemetry("nv_inference_request_duration_us",
                "From arrival to answer, summed over answered requests.", kUntyped,
                sum("request_seconds"));
    OfTelemetry("nv_inference_queue_duration_us",
                "Wait for a batch, summed over requests that ran.", kUntyped, sum("queue_seconds"));
    OfTelemetry("nv_inference_compute_infer_duration_us",
                "Lookups and dense program of its batch, summed over answered requests.", kUntyped,
                [](const auto& each) { return Microseconds(each.compute_seconds); });
    Each("nv_inference_pending_request_count", "Requests waiting for a batch.", kGauge,
         [](const auto& each) { return each.engine.queued.requests; });
  }

  const ServerMetrics& server_;
  std::vector<py::dict> labels_;  // Of each version.
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
