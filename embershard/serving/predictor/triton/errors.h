// Converts between Status and the errors of Triton's API.

#pragma once

#include <exception>
#include <memory>
#include <new>
#include <string>

#include "base/status.h"
#include "triton/api.h"

namespace embershard::triton {

// The caller owns the error; null if `status` is ok.
TRITONSERVER_Error* ToTriton(const Status& status);

struct DeleteError {
  void operator()(TRITONSERVER_Error* error) const { TRITONSERVER_ErrorDelete(error); }
};

// Deletes `error`. Ok if it is null.
Status FromTriton(TRITONSERVER_Error* error);

void LogTriton(TRITONSERVER_LogLevel level, const std::string& message);

// Used for failures that cannot be returned to a caller. Deletes `error`.
void LogFailure(const char* what, TRITONSERVER_Error* error);

// Exceptions become errors, too.
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

// Deletes the State of `object`, which `state_of` returns.
template <class State, class Object>
TRITONSERVER_Error* Finalize(TRITONSERVER_Error* (*state_of)(Object*, void**), Object* object) {
  return Answered([state_of, object] {
    void* state = nullptr;
    const Status status = FromTriton(state_of(object, &state));
    const std::unique_ptr<State> ended(static_cast<State*>(state));
    return status;
  });
}

}  // namespace embershard::triton
