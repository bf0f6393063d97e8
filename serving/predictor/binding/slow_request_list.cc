#include "binding/slow_request_list.h"

#include "binding/errors.h"
#include "telemetry/outcome.h"

namespace embershard {

namespace py = pybind11;
using py::literals::operator""_a;

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
