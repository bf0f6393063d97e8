// Merges validated requests into one slot, and splits the slot's outputs among them.

#pragma once

#include <memory>
#include <span>
#include <vector>

#include "batching/request.h"
#include "model/model.h"
#include "model/slot.h"

namespace embershard {

// Fills the inputs of `slot`, feature by feature: each request's values are copied once, ids are
// mapped to rows and max_ids is applied on the way. Writes the unknown ids of each request to
// `unknown_ids`, one list per request.
// REQUIRES: every request passed CheckRequest() with this model.
void BuildBatch(const Model& model, std::span<const std::unique_ptr<Request>> requests, Slot* slot,
                std::vector<std::vector<UnknownIdCount>>* unknown_ids);

// Outputs of request number `index`, whose first example is number `first_example` of the batch.
std::vector<ResponseOutput> CutOutputs(const Schema& schema, const Slot& slot,
                                       const Request& request, size_t index, size_t first_example);

}  // namespace embershard
