#include "binding/errors.h"

#include <string>

namespace embershard::binding {
namespace {

namespace py = pybind11;

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

}  // namespace

py::object ToPythonError(const Status& status) {
  py::object errors = py::module_::import("embershard.errors");
  // A message may quote what is no UTF-8.
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

}  // namespace embershard::binding
