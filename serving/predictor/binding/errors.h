// From Status to embershard.errors: the one map of this binding. How its calls run: without the
// GIL, and with their failures raised.

#pragma once

#include <pybind11/pybind11.h>

#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "base/status.h"

namespace embershard::binding {

// An instance of the class in embershard.errors. REQUIRES: the GIL, !status.ok().
pybind11::object ToPythonError(const Status& status);

// A str. What is no UTF-8 becomes escapes. REQUIRES: the GIL.
pybind11::str ToPythonText(const std::string& text);

// Raises it. REQUIRES: the GIL. Does nothing when ok.
void RaiseIfFailed(const Status& status);

template <class T>
T ValueOrRaise(Result<T> result) {
  RaiseIfFailed(result.status());
  return std::move(*result);
}

// Runs `action` without the GIL.
template <class Action>
auto Released(Action action) {
  const pybind11::gil_scoped_release released;
  return action();
}

// What `action` gives or, where the system has no memory or no thread left for it, that.
template <class Given, class Action>
Given OrExhausted(Action action) {
  try {
    return action();
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kResourceExhausted, "loading: the memory has run out");
  } catch (const std::system_error& error) {
    return Status(
        StatusCode::kResourceExhausted,
        std::string("loading: the system gives no more threads or memory: ") + error.what());
  }
}

}  // namespace embershard::binding
