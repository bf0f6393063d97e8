// Dense programs that AOTInductor compiled: `embershard compile` makes them.

#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "dense/dense_program.h"

namespace embershard {

// Of the torch in this process, as a manifest states it: "2.13.0".
std::string TorchVersion();

// Unpacks the bytes into a new folder below the one for temporary files, which this user alone may
// enter, and loads the library in it. kBadPackage when they are not a program of the shape that
// docs/format.md describes. REQUIRES: this version of torch and a processor like this compiled it
// (ChooseProgram): another's may end the process.
Result<std::unique_ptr<DenseProgram>> LoadAotProgram(ProgramBytes program, const Schema& schema,
                                                     const DenseProgramOptions& options);

}  // namespace embershard
