// From Status to embershard.errors: the one map of this binding.

#ifndef EMBERSHARD_BINDING_ERRORS_H_
#define EMBERSHARD_BINDING_ERRORS_H_

#include <pybind11/pybind11.h>

#include "base/status.h"

namespace embershard {

// An instance of the class in embershard.errors. REQUIRES: the GIL, !status.ok().
pybind11::object ToPythonError(const Status& status);

// Raises it. REQUIRES: the GIL. Does nothing when ok.
void RaiseIfFailed(const Status& status);

}  // namespace embershard

#endif  // EMBERSHARD_BINDING_ERRORS_H_
