#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "binding/errors.h"
#include "binding/module.h"
#include "lookup/lookup_times.h"

namespace embershard::binding {
namespace {

namespace py = pybind11;

template <class T>
std::span<const T> SpanOf(const char* name, const py::buffer_info& info) {
  const bool dense = info.ndim == 1 && info.strides[0] == info.itemsize;
  if (!dense || info.itemsize != static_cast<py::ssize_t>(sizeof(T))) {
    RaiseIfFailed(InvalidArgument(name, ": expected one contiguous dimension of ", sizeof(T),
                                  " bytes a value"));
  }
  return {static_cast<const T*>(info.ptr), static_cast<size_t>(info.size)};
}

WeightType WeightsOf(const std::string& name) {
  static const std::map<std::string, WeightType> kNamed = {{"int8", WeightType::kInt8},
                                                           {"int4", WeightType::kInt4},
                                                           {"fp16", WeightType::kFp16},
                                                           {"fp32", WeightType::kFp32}};
  const auto found = kNamed.find(name);
  if (found == kNamed.end()) {
    RaiseIfFailed(InvalidArgument("weights: expected int8, int4, fp16 or fp32, got '", name, "'"));
  }
  return found->second;
}

// lookup/lookup_times.h over buffers of Python: seconds of CPU time of each batch. `rows`: uint8;
// `ids` and `offsets`: int64, all contiguous.
std::vector<double> LookupSeconds(const py::buffer& rows, const std::string& weights, size_t dim,
                                  const py::buffer& ids, const py::buffer& offsets) {
  const py::buffer_info row_info = rows.request();
  const py::buffer_info id_info = ids.request();
  const py::buffer_info offset_info = offsets.request();
  const MeasuredTable table{SpanOf<std::byte>("rows", row_info), WeightsOf(weights), dim};
  const auto id_span = SpanOf<int64_t>("ids", id_info);
  const auto offset_span = SpanOf<int64_t>("offsets", offset_info);
  return ValueOrRaise(Released([&] { return LookupTimes(table, id_span, offset_span); }));
}

}  // namespace

void DefineLookupSeconds(py::module_& module) {
  module.def("lookup_seconds", &LookupSeconds, py::arg("rows"), py::arg("weights"), py::arg("dim"),
             py::arg("ids"), py::arg("offsets"));
}

}  // namespace embershard::binding
