#include <chrono>
#include <functional>
#include <memory>
#include <ratio>
#include <string>
#include <utility>

#include "binding/module.h"
#include "package/trusted_keys.h"

namespace embershard::binding {
namespace {

constexpr double kNumberMax = (1U << 31) - 1;

// Reads keyword arguments. Raises KeyError if a keyword is missing, TypeError if its value has the
// wrong type, and RequestError if a number is out of range. The errors name the keyword.
// REQUIRES: the caller holds the GIL.
class Keywords {
 public:
  Keywords(std::string call, const py::kwargs& kwargs) : call_(std::move(call)), kwargs_(kwargs) {}

  template <class T>
  void Read(const char* name, T* field) {
    const py::object value = kwargs_[name];
    try {
      *field = value.cast<T>();
    } catch (const py::cast_error&) {
      RefuseType(name, value);
    }
  }

  // Reads a time of 0 .. 2147483647 `Unit`s, which may be a fraction. Rounds up.
  template <class Unit, class Duration>
  void ReadTime(const char* name, Duration* field) {
    *field = std::chrono::ceil<Duration>(std::chrono::duration<double, Unit>(Number(name)));
  }

 private:
  double Number(const char* name) {
    double value = 0;
    Read(name, &value);
    return NumberInRange(name, value);
  }

  [[noreturn]] void RefuseType(const char* name, const py::object& value) const {
    throw py::type_error(call_ + ": keyword '" + name + "': unexpected value " +
                         py::repr(value).cast<std::string>());
  }

  const std::string call_;
  const py::kwargs kwargs_;
};

void Read(Keywords& keywords, ModelOptions* to) {
  std::string tables;
  std::string fbgemm_folder;
  keywords.Read("fbgemm_folder", &fbgemm_folder);
  keywords.Read("plan", &to->package.plan);
  keywords.Read("dense_program", &to->dense_program);
  keywords.Read("tables", &tables);
  keywords.Read("half_transfers", &to->half_transfers);
  keywords.Read("threads", &to->threads);
  keywords.Read("slots", &to->slots);
  if (tables != "mmap" && tables != "resident") {
    RaiseIfFailed(InvalidArgument("tables: expected mmap or resident, got '", tables, "'"));
  }
  to->package.residency = tables == "resident" ? TableResidency::kResident : TableResidency::kMmap;
  to->fbgemm_folder = fbgemm_folder;
}

void Read(Keywords& keywords, EngineOptions* to) {
  keywords.Read("sample_tolerance", &to->sample_tolerance);
  keywords.Read("max_request_examples", &to->batching.max_request_examples);
  keywords.Read("max_request_ids", &to->batching.max_request_ids);
  keywords.Read("max_batch_examples", &to->batching.max_batch_examples);
  keywords.Read("max_batch_ids", &to->batching.max_batch_ids);
  keywords.Read("merge_examples", &to->batching.merge_examples);
  keywords.Read("max_queued_examples", &to->batching.max_queued_examples);
  keywords.Read("max_queued_ids", &to->batching.max_queued_ids);
  keywords.Read("max_queued_bytes", &to->batching.max_queued_bytes);
  keywords.ReadTime<std::micro>("max_inline_us", &to->batching.max_inline);
  keywords.Read("model_weights", &to->model_weights);
}

using LoadReport = std::function<void(const std::string& what, const std::string& model,
                                      int64_t version, double seconds, const std::string& message)>;

void Read(Keywords& keywords, ModelLoaderOptions* to) {
  std::string rule;
  LoadReport report;
  keywords.Read("models", &to->models);
  keywords.Read("version", &rule);
  keywords.Read("memory_budget", &to->memory_budget);
  keywords.Read("load_report", &report);
  double load_mb_per_second = 0;
  keywords.Read("load_mb_per_second", &load_mb_per_second);
  to->load_bytes_per_second = load_mb_per_second * 1e6;
  keywords.ReadTime<std::ratio<1>>("load_timeout_seconds", &to->load.timeout);
  to->rule = ValueOrRaise(ParseVersionRule(rule));
  to->report = [report = std::move(report)](const LoadEvent& event) {
    report(event.what, event.model, event.version, event.seconds, event.message);
  };
  Read(keywords, &to->engine);
}

void Read(Keywords& keywords, rpc::ConnectionLimits* to) {
  keywords.Read("max_connections", &to->max_connections);
  keywords.Read("connections_report", &to->report);
  keywords.Read("behind_proxy", &to->behind_proxy);
  keywords.Read("max_connection_calls", &to->max_calls);
  keywords.ReadTime<std::ratio<1>>("connection_idle_seconds", &to->idle);
  keywords.ReadTime<std::ratio<1>>("connection_age_seconds", &to->age);
  keywords.ReadTime<std::ratio<1>>("keepalive_seconds", &to->keepalive);
  keywords.ReadTime<std::ratio<1>>("min_ping_seconds", &to->min_ping);
}

void Read(Keywords& keywords, rpc::SecurityOptions* to) {
  keywords.Read("tls_certificate", &to->certificate);
  keywords.Read("tls_key", &to->key);
  keywords.Read("tls_client_ca", &to->client_ca);
  keywords.Read("token_file", &to->token_file);
  keywords.Read("security_report", &to->report);
}

void Read(Keywords& keywords, rpc::ServerOptions* to) {
  keywords.Read("host", &to->host);
  keywords.Read("port", &to->port);
  keywords.ReadTime<std::milli>("default_timeout_ms", &to->default_timeout);
  keywords.Read("max_message_bytes", &to->max_message_bytes);
  keywords.Read("stream_in_flight", &to->stream_in_flight);
  keywords.Read("model_control", &to->model_control);
  keywords.Read("reflection", &to->reflection);
  Read(keywords, &to->connections);
  keywords.Read("record", &to->record.path);
  keywords.Read("record_requests", &to->record.max_requests);
  keywords.Read("record_share", &to->record.share);
  keywords.Read("record_report", &to->record.report);
  Read(keywords, &to->security);
}

// Returns null if `trusted_key` is empty.
std::shared_ptr<const TrustedKeys> ReadTrustedKey(Keywords& keywords) {
  std::string path;
  keywords.Read("trusted_key", &path);
  return path.empty() ? nullptr : ValueOrRaise(TrustedKeys::Read(path));
}

}  // namespace

PredictorArguments PredictorArgumentsFrom(const py::kwargs& kwargs) {
  PredictorArguments arguments;
  Keywords keywords("LocalPredictor", kwargs);
  keywords.Read("folder", &arguments.folder);
  Read(keywords, &arguments.model);
  return arguments;
}

ServerArguments ServerArgumentsFrom(const py::kwargs& kwargs) {
  ServerArguments arguments;
  Keywords keywords("Server", kwargs);
  keywords.Read("repository", &arguments.repository);
  Read(keywords, &arguments.model);
  Read(keywords, &arguments.loader);
  Read(keywords, &arguments.server);
  keywords.ReadTime<std::milli>("slow_request_ms", &arguments.slow_request);
  keywords.Read("shadow_share", &arguments.shadow.share);
  keywords.Read("shadow_time", &arguments.shadow.time);
  keywords.Read("traffic_label", &arguments.traffic.label);
  keywords.Read("traffic_share", &arguments.traffic.share);
  arguments.model.package.trusted = ReadTrustedKey(keywords);
  return arguments;
}

rpc::SecurityOptions SecurityOptionsFrom(const py::kwargs& kwargs) {
  rpc::SecurityOptions options;
  Keywords keywords("check_security", kwargs);
  Read(keywords, &options);
  return options;
}

double NumberInRange(const std::string& name, double value) {
  if (!(value >= 0 && value <= kNumberMax)) {
    RaiseIfFailed(InvalidArgument(name, ": expected 0..2147483647, got ", value));
  }
  return value;
}

}  // namespace embershard::binding
