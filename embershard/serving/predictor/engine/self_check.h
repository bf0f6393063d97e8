// Proof at start that a model gives the outputs its package says it must give.

#pragma once

#include "base/read_control.h"
#include "base/status.h"
#include "batching/split_request.h"
#include "engine/batch_executor.h"
#include "model/model.h"

namespace embershard {

// Largest difference allowed where nobody says another.
inline constexpr float kSampleTolerance = 1e-5F;

// Runs the model's samples through validation and the builder, each alone and all
// merged. kBadPackage names file, sample, output and example when an output lies
// further than tolerance * max(1, |expected|) from what is expected (100 times that where the
// dense program is in bfloat16, 1000 times where its layers' outputs are rounded too), or when
// validation refuses a sample; a model that fails gives its own status. `control`: counts each
// batch as a step, and ends the check where it was stopped. Null: nobody does. `buffers`: those of
// the batches.
Status CheckSamples(const Model& model, float tolerance, BatchExecutor* executor, Slot* buffers,
                    ReadControl* control = nullptr);

// The same of one batch, of all samples again and again as long as `most` has room, at least once:
// for warm-up, before the version is published.
Status CheckFullBatch(const Model& model, const ChunkBudget& most, float tolerance,
                      BatchExecutor* executor, Slot* buffers, ReadControl* control = nullptr);

}  // namespace embershard
