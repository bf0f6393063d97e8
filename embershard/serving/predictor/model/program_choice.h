// How a package's dense program is run here.

#pragma once

#include <set>
#include <string>
#include <string_view>

#include "base/status.h"
#include "model/model.h"
#include "package/manifest.h"

namespace embershard {

// The `dense_program` that runs the TorchScript's bfloat16 layers in float32.
inline constexpr std::string_view kFloat32LayersTarget = "cpu-fp32";

struct ProgramChoice {
  bool float32_layers = false;  // As in DenseProgramOptions.
  ProgramReport report;
};

// Always the package's TorchScript. `target` says how to run its layers; if it is empty, the
// processor's `instructions` decide. Compiled programs that the manifest lists are not run, and the
// report says so. kNotFound: there is no such target.
Result<ProgramChoice> ChooseProgram(const Manifest& manifest, const std::string& target,
                                    const std::set<std::string>& instructions);

}  // namespace embershard
