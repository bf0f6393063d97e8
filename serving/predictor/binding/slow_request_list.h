// Slow requests, as dicts.

#ifndef EMBERSHARD_BINDING_SLOW_REQUEST_LIST_H_
#define EMBERSHARD_BINDING_SLOW_REQUEST_LIST_H_

#include <pybind11/pybind11.h>

#include <vector>

#include "telemetry/slow_log.h"

namespace embershard {

// One dict a call, with the fields of SlowRequest; its outcome as code and reason. REQUIRES: the
// GIL.
pybind11::list ToList(const std::vector<SlowRequest>& requests);

}  // namespace embershard

#endif  // EMBERSHARD_BINDING_SLOW_REQUEST_LIST_H_
