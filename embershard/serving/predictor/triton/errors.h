// Converts between Status and the errors of Triton's API.

#pragma once

#include <exception>
#include <memory>
#include <new>
#include <string>

#include "base/status.h"
#include "triton/api.h"

namespace embershard::triton {

// An error that the caller owns; null if `status` is ok.
TRITONSERVER_Error* ToTriton(const Status& status);

struct DeleteError {
  void operator()(TRITONSERVER_Error* error) const { TRITONSERVER_ErrorDelete(error); }
};

// Converts and deletes `error`. Ok if it is null.
Status FromTriton(TRITONSERVER_Error* error);

void LogTriton(TRITONSERVER_LogLevel level, const std::string& message);

// Logs `error` and deletes it, for failures that cannot be returned to a caller.
void LogFailure(const char* what, TRITONSERVER_Error* error);

// Runs `action` and converts its Status. Exceptions become errors.
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
