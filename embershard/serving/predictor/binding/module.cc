#include "binding/module.h"

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/bus_error.h"
#include "base/core_count.h"
#include "lookup/lookup_times.h"
#include "package/manifest.h"
#include "package/package.h"
#include "package/trusted_keys.h"
#include "tensors/tensor_specs.h"

namespace embershard::binding {
namespace {

using py::literals::operator""_a;

const char* ClassName(const Status& status) {
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kFailedPrecondition:
      return "RequestError";
    case StatusCode::kNotFound:
      return "NotFoundError";
    case StatusCode::kResourceExhausted:
      return "OverloadedError";
    case StatusCode::kDeadlineExceeded:
      return "DeadlineError";
    case StatusCode::kUnavailable:
      return "UnavailableError";
    case StatusCode::kBadPackage:
      return status.reason() == StatusReason::kOtherDevices ? "PlanError" : "PackageError";
    case StatusCode::kOk:
    case StatusCode::kInternal:
      break;
  }
  return "InternalError";
}

template <class T>
std::span<const T> SpanOf(const char* name, const py::buffer_info& info) {
  const bool dense = info.ndim == 1 && info.strides[0] == info.itemsize;
  if (!dense || info.itemsize != static_cast<py::ssize_t>(sizeof(T))) {
    RaiseIfFailed(InvalidArgument(name, ": expected one contiguous dimension of ", sizeof(T),
                                  "-byte values"));
  }
  return {static_cast<const T*>(info.ptr), static_cast<size_t>(info.size)};
}

WeightType WeightsOf(const std::string& name) {
  static const std::map<std::string, WeightType> kNamed = {{"int8", WeightType::kInt8},
                                                           {"int4", WeightType::kInt4},
                                                           {"fp16", WeightType::kFp16},
                                                           {"fp32", WeightType::kFp32}};
  const auto type = kNamed.find(name);
  if (type == kNamed.end()) {
    RaiseIfFailed(InvalidArgument("weights: expected int8, int4, fp16 or fp32, got '", name, "'"));
  }
  return type->second;
}

// Runs LookupTimes() on Python buffers and returns the CPU seconds of each batch. All buffers are
// contiguous: `rows` of uint8, `ids` and `offsets` of int64.
std::vector<double> LookupSeconds(const py::buffer& rows, const std::string& weights, size_t dim,
                                  const py::buffer& ids, const py::buffer& offsets) {
  const py::buffer_info row_info = rows.request();
  const py::buffer_info id_info = ids.request();
  const py::buffer_info offset_info = offsets.request();
  const MeasuredTable table{SpanOf<std::byte>("rows", row_info), WeightsOf(weights), dim};
  const auto id_span = SpanOf<int64_t>("ids", id_info);
  const auto offset_span = SpanOf<int64_t>("offsets", offset_info);
  return ValueOrRaise(WithoutGil([&] { return LookupTimes(table, id_span, offset_span); }));
}

py::list ToList(const std::vector<TensorSpec>& specs) {
  py::list list;
  for (const TensorSpec& spec : specs) {
    list.append(py::dict("name"_a = ToPythonText(spec.name),
                         "datatype"_a = py::str(spec.datatype.data(), spec.datatype.size()),
                         "shape"_a = spec.shape));
  }
  return list;
}

// Returns a model's input and output tensors, for serving/triton, as {"inputs": [{name, datatype,
// shape}], "outputs": [...]}. The fields are those of tensors/tensor_specs.h; -1 in a shape is any
// size. `manifest` is the text of manifest.json. Raises PackageError if it is not valid.
py::dict DescribeTensors(const std::string& manifest) {
  const Schema schema = ValueOrRaise(ParseManifest(manifest)).schema;
  return py::dict("inputs"_a = ToList(InputSpecs(schema)),
                  "outputs"_a = ToList(OutputSpecs(schema)));
}

}  // namespace

py::object ToPythonError(const Status& status) {
  py::object errors = py::module_::import("embershard.errors");
  // A message may quote bytes that are not UTF-8.
  return errors.attr(ClassName(status))(ToPythonText(status.message()));
}

py::str ToPythonText(const std::string& text) {
  PyObject* const decoded =
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace");
  if (decoded == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(decoded);
}

void RaiseIfFailed(const Status& status) {
  if (status.ok()) return;
  py::object error = ToPythonError(status);
  PyErr_SetObject(py::type::handle_of(error).ptr(), error.ptr());
  throw py::error_already_set();
}

py::dict ProgramDict(const ProgramReport& program) {
  return py::dict("target"_a = ToPythonText(program.target), "why"_a = ToPythonText(program.why));
}

PYBIND11_MODULE(_predictor, module) {
  DefineServer(module);
  DefineLocalPredictor(module);
  module.def("lookup_seconds", &LookupSeconds, py::arg("rows"), py::arg("weights"), py::arg("dim"),
             py::arg("ids"), py::arg("offsets"));
  module.def("example_metrics", &ExampleMetricList);
  module.def("core_count", [] { return CoreCount(); });
  module.def("explain_bus_errors", &ExplainBusErrors);
  // Returns why the files cannot be used, or "" if they can.
  module.def("check_security", [](const py::kwargs& kwargs) {
    return ToPythonText(rpc::CheckSecurity(SecurityOptionsFrom(kwargs)).message());
  });
  // Returns why the file of public keys cannot be used, or "" if it can.
  module.def(
      "check_trusted_key",
      [](const std::string& path) {
        return ToPythonText(TrustedKeys::Read(path).status().message());
      },
      py::arg("path"));
  module.def(
      "verify_package",
      [](const std::string& folder) {
        RaiseIfFailed(WithoutGil([&] { return VerifyPackage(folder); }));
      },
      py::arg("folder"));
  module.def("describe_tensors", &DescribeTensors, py::arg("manifest"));
}

}  // namespace embershard::binding
