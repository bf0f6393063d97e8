#pragma once

#include "base/read_control.h"
#include "base/status.h"
#include "batching/split_request.h"
#include "engine/batch_executor.h"
#include "model/model.h"

namespace embershard {

// Default of EngineOptions::sample_tolerance.
inline constexpr float kSampleTolerance = 1e-5F;

// Runs the model's samples through validation, the builder and the model, one by one and all
// merged. Fails with kBadPackage, naming file, sample, output and example, if validation refuses a
// sample or an output differs by more than tolerance * max(1, |expected|): 100 times that if the
// dense program is in bfloat16, 1000 times if the model rounds elsewhere, see
// Model::rounds_elsewhere(). `control` (may be null) counts each batch as a step and can stop the
// check.
Status CheckSamples(const Model& model, float tolerance, BatchExecutor* executor, Slot* buffers,
                    ReadControl* control = nullptr);

// Checks one batch of all samples, repeated to fill `most` but at least once. Used as warm-up
// before the version is published.
Status CheckFullBatch(const Model& model, const ChunkBudget& most, float tolerance,
                      BatchExecutor* executor, Slot* buffers, ReadControl* control = nullptr);

}  // namespace embershard
