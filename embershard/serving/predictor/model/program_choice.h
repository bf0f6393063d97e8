#pragma once

#include <set>
#include <string>
#include <string_view>

#include "base/status.h"
#include "model/model.h"
#include "package/manifest.h"

namespace embershard {

// Target that runs the TorchScript program's bfloat16 layers in float32.
inline constexpr std::string_view kFloat32LayersTarget = "cpu-fp32";

struct ProgramChoice {
  bool float32_layers = false;  // See DenseProgramOptions.
  ProgramReport report;
};

// Always chooses the TorchScript program. `target` selects how to run its layers; empty: by the
// processor's `instructions`. Compiled programs in the manifest are not run, which the report
// states. Fails with kNotFound if there is no such target.
Result<ProgramChoice> ChooseProgram(const Manifest& manifest, const std::string& target,
                                    const std::set<std::string>& instructions);

}  // namespace embershard
