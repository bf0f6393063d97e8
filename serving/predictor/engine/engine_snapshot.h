// What an engine serves, holds and has counted, at one moment.

#ifndef EMBERSHARD_ENGINE_ENGINE_SNAPSHOT_H_
#define EMBERSHARD_ENGINE_ENGINE_SNAPSHOT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "batching/batch_former.h"
#include "lookup/lookup.h"
#include "telemetry/telemetry.h"

namespace embershard {

struct EngineSnapshot {
  std::string model;
  int64_t version = 0;
  std::vector<std::string> sparse_inputs;  // Names, as TelemetrySnapshot::unknown_ids counts them.
  size_t max_batch_examples = 0;
  size_t slots = 0;  // Batches that may run at once.
  TelemetrySnapshot telemetry;
  QueueSize queued;                 // Of the moment.
  std::vector<DeviceLoad> devices;  // Without what the samples cost at the start.
};

}  // namespace embershard

#endif  // EMBERSHARD_ENGINE_ENGINE_SNAPSHOT_H_
