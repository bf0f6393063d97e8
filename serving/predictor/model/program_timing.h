// How long dense programs take for requests of the samples' sizes.

#pragma once

#include <memory>
#include <vector>

#include "base/read_control.h"
#include "base/status.h"
#include "dense/dense_program.h"
#include "package/samples.h"

namespace embershard {

// Runs the programs in turns over each sample's number of examples and lengths of sequences, with
// made-up values, for a quarter of a second or 200 turns. The least seconds that each took for all
// samples together. `control` counts each turn, and stops it; null: nobody does. Fails as a program
// does.
Result<std::vector<double>> TimePrograms(const std::vector<std::unique_ptr<DenseProgram>>& programs,
                                         const Schema& schema,
                                         const std::vector<SampleRequest>& samples,
                                         ReadControl* control);

}  // namespace embershard
