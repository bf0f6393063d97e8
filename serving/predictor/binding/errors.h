// From Status to embershard.errors: the one map of this binding.

#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "base/status.h"

namespace embershard::binding {

// An instance of the class in embershard.errors. REQUIRES: the GIL, !status.ok().
pybind11::object ToPythonError(const Status& status);

// A str. What is no UTF-8 becomes escapes. REQUIRES: the GIL.
pybind11::str ToPythonText(const std::string& text);

// Raises it. REQUIRES: the GIL. Does nothing when ok.
void RaiseIfFailed(const Status& status);

}  // namespace embershard::binding
