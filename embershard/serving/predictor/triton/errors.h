// Between Status and the errors of Triton's API.

#pragma once

#include <exception>
#include <memory>
#include <new>
#include <string>

#include "base/status.h"
#include "triton/api.h"

namespace embershard::triton {

// Null where `status` is ok. The caller owns it.
TRITONSERVER_Error* ToTriton(const Status& status);

struct DeleteError {
  void operator()(TRITONSERVER_Error* error) const { TRITONSERVER_ErrorDelete(error); }
};

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

// Deletes the State that `object` has, which `state_of` gives.
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
