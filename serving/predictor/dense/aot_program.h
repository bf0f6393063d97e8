// Dense programs that AOTInductor compiled: `embershard compile` makes them.

#ifndef EMBERSHARD_DENSE_AOT_PROGRAM_H_
#define EMBERSHARD_DENSE_AOT_PROGRAM_H_

#include <filesystem>
#include <memory>
#include <string>

#include "base/status.h"
#include "dense/dense_program.h"

namespace embershard {

// Of the torch in this process, as a manifest states it: "2.13.0".
std::string TorchVersion();

// Unpacks the file below the folder for temporary files, and loads the library in it.
// kBadPackage when it is not a program of the shape that docs/format.md describes.
// REQUIRES: this version of torch and a processor like this compiled it (ChooseProgram):
// another's may end the process.
Result<std::unique_ptr<DenseProgram>> LoadAotProgram(const std::filesystem::path& file,
                                                     const Schema& schema,
                                                     const DenseProgramOptions& options);

}  // namespace embershard

#endif  // EMBERSHARD_DENSE_AOT_PROGRAM_H_
