#include "binding/errors.h"

namespace embershard {
namespace {

namespace py = pybind11;

const char* ClassName(StatusCode code) {
  switch (code) {
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
      return "PackageError";
    case StatusCode::kOk:
    case StatusCode::kInternal:
      break;
  }
  return "InternalError";
}

}  // namespace

py::object ToPythonError(const Status& status) {
  py::object errors = py::module_::import("embershard.errors");
  return errors.attr(ClassName(status.code()))(status.message());
}

void RaiseIfFailed(const Status& status) {
  if (status.ok()) return;
  py::object error = ToPythonError(status);
  PyErr_SetObject(py::type::handle_of(error).ptr(), error.ptr());
  throw py::error_already_set();
}

}  // namespace embershard
