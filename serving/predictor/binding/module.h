// The parts of the extension module embershard.serving._predictor. embershard/serving/_native.py is
// its only caller and says what the arguments mean.
//
// No call keeps the GIL while it loads, waits or runs a model, and no request that arrives over
// gRPC ever takes it.

#pragma once

#include <pybind11/pybind11.h>

#include "model/model.h"

namespace embershard::binding {

void DefineServer(pybind11::module_& module);
void DefineLocalPredictor(pybind11::module_& module);
void DefineLookupSeconds(pybind11::module_& module);

// The fields of DenseProgram in serving/repository.py.
pybind11::dict ProgramDict(const ProgramReport& program);

}  // namespace embershard::binding
