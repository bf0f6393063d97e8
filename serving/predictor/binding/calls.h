// How calls of the extension run: without the GIL, and with their failures raised.

#pragma once

#include <pybind11/pybind11.h>

#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "base/status.h"
#include "binding/errors.h"

namespace embershard::binding {

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
