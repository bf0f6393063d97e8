#include "triton/errors.h"

#include "base/text.h"

namespace embershard::triton {
namespace {

TRITONSERVER_Error_Code CodeOf(const Status& status) {
  if (status.reason() == StatusReason::kAbandoned) return TRITONSERVER_ERROR_CANCELLED;
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kFailedPrecondition:
    case StatusCode::kBadPackage:  // While a model is loaded.
      return TRITONSERVER_ERROR_INVALID_ARG;
    case StatusCode::kNotFound:
      return TRITONSERVER_ERROR_NOT_FOUND;
    case StatusCode::kResourceExhausted:
    case StatusCode::kDeadlineExceeded:
    case StatusCode::kUnavailable:
      return TRITONSERVER_ERROR_UNAVAILABLE;
    case StatusCode::kOk:
    case StatusCode::kInternal:
      break;
  }
  return TRITONSERVER_ERROR_INTERNAL;
}

StatusCode CodeOf(TRITONSERVER_Error_Code code) {
  switch (code) {
    case TRITONSERVER_ERROR_INVALID_ARG:
    case TRITONSERVER_ERROR_UNSUPPORTED:
    case TRITONSERVER_ERROR_ALREADY_EXISTS:
      return StatusCode::kInvalidArgument;
    case TRITONSERVER_ERROR_NOT_FOUND:
      return StatusCode::kNotFound;
    case TRITONSERVER_ERROR_UNAVAILABLE:
      return StatusCode::kUnavailable;
    case TRITONSERVER_ERROR_UNKNOWN:
    case TRITONSERVER_ERROR_INTERNAL:
    case TRITONSERVER_ERROR_CANCELLED:
      break;
  }
  return StatusCode::kInternal;
}

}  // namespace

TRITONSERVER_Error* ToTriton(const Status& status) {
  if (status.ok()) return nullptr;
  return TRITONSERVER_ErrorNew(CodeOf(status), CutMessage(status.message()).c_str());
}

Status FromTriton(TRITONSERVER_Error* error) {
  if (error == nullptr) return {};
  Status status(CodeOf(TRITONSERVER_ErrorCode(error)), TRITONSERVER_ErrorMessage(error));
  TRITONSERVER_ErrorDelete(error);
  return status;
}

void LogTriton(TRITONSERVER_LogLevel level, const std::string& message) {
  // A failure of the log itself cannot be reported.
  if (TRITONSERVER_Error* const error =
          TRITONSERVER_LogMessage(level, "embershard", /*line=*/0, message.c_str());
      error != nullptr) {
    TRITONSERVER_ErrorDelete(error);
  }
}

void LogFailure(const char* what, TRITONSERVER_Error* error) {
  if (error == nullptr) return;
  LogTriton(TRITONSERVER_LOG_ERROR,
            std::string(what) + " failed: " + TRITONSERVER_ErrorMessage(error));
  TRITONSERVER_ErrorDelete(error);
}

}  // namespace embershard::triton
