// Every metric of a server, as one flat list. docs/metrics.md describes them.

#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <vector>

#include "engine/engine.h"
#include "grpc/connection/security_options.h"
#include "telemetry/telemetry.h"

namespace embershard::binding {

struct VersionMetrics {
  EngineSnapshot engine;
  bool is_default = false;
};

struct ServerMetrics {
  std::vector<VersionMetrics> versions;  // Those served, models and versions ascending.
  TelemetrySnapshot unserved;            // Calls that found no version; streams; slow calls.
  uint64_t connections_refused = 0;
  rpc::SecurityCounts security;
};

// Tuples (name, help, kind, labels, value), those of one name together. `name` lacks the endings
// that Prometheus adds by kind. `kind`: counter, gauge, histogram, info or untyped. `labels`: a
// dict. `value`: a float or, of a histogram, (bounds, counts, sum) with one count more than bounds,
// not cumulative. REQUIRES: the GIL.
pybind11::list MetricList(const ServerMetrics& server);

// The same list of a server with one version of one input and one device: all names and labels.
pybind11::list ExampleMetricList();

}  // namespace embershard::binding
