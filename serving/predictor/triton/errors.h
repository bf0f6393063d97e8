// Between Status and the errors of Triton's API.

#pragma once

#include <exception>
#include <new>
#include <string>

#include "base/status.h"
#include "triton/api.h"

namespace embershard::triton {

// Null where `status` is ok. The caller owns it.
TRITONSERVER_Error* ToTriton(const Status& status);

// Deletes `error`. Ok where it is null.
Status FromTriton(TRITONSERVER_Error* error);

void LogTriton(TRITONSERVER_LogLevel level, const std::string& message);

// For calls whose failure nobody can be told of: logs what failed, and deletes `error`.
void LogFailure(const char* what, TRITONSERVER_Error* error);

// What `action`, which returns a Status, says to Triton. No exception leaves it.
template <class Action>
TRITONSERVER_Error* Answered(Action action) {
  Status status;
  try {
    status = action();
  } catch (const std::bad_alloc&) {
    status = OutOfMemory();
  } catch (const std::exception& error) {
    status = Internal("the call failed: ", error.what());
  }
  return ToTriton(status);
}

}  // namespace embershard::triton
