// What the server has counted, as dicts that serving/*.py reads.

#ifndef EMBERSHARD_BINDING_SNAPSHOT_DICT_H_
#define EMBERSHARD_BINDING_SNAPSHOT_DICT_H_

#include <pybind11/pybind11.h>

#include <vector>

#include "engine/engine_snapshot.h"
#include "engine/served_models.h"
#include "telemetry/slow_log.h"

namespace embershard {

// REQUIRES: the GIL, as do those below.
//
//   model str, version int, start_unix_seconds float, max_batch_examples int
//   requests       [{code, reason, count}], every pair that exists
//   histograms     {name: {bounds, counts, sum}}; len(counts) == len(bounds) + 1
//   examples, batches, in_flight, bytes_received, bytes_sent int
//   unknown_ids    {sparse input: count}
//   queued         {requests, examples, ids, bytes}
//   devices        [{name, table_bytes, lookup_seconds, batches, rows}]
//   shadow         {sent, dropped, failed}
pybind11::dict ToDict(const EngineSnapshot& snapshot);

// Of what belongs to no version: unserved, as `requests` above; open_streams, in_flight,
// bytes_received int; start_unix_seconds float; slow {seen, dropped}.
pybind11::dict UnservedToDict(const TelemetrySnapshot& telemetry);

const char* NameOf(VersionState state);

// One dict a call, with the fields of SlowRequest; its outcome as code and reason.
pybind11::list ToList(const std::vector<SlowRequest>& requests);

}  // namespace embershard

#endif  // EMBERSHARD_BINDING_SNAPSHOT_DICT_H_
