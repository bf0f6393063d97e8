#pragma once

#include <memory>
#include <span>
#include <vector>

#include "batching/request.h"
#include "model/model.h"
#include "model/slot.h"

namespace embershard {

// Fills the inputs of `slot`: maps ids to rows and applies max_ids. Writes each request's unknown
// ids to `unknown_ids`. REQUIRES: every request passed CheckRequest() with this model.
void BuildBatch(const Model& model, std::span<const std::unique_ptr<Request>> requests, Slot* slot,
                std::vector<std::vector<UnknownIdCount>>* unknown_ids);

// Outputs of request number `index`, whose first example is number `first_example` of the batch.
std::vector<ResponseOutput> CutOutputs(const Schema& schema, const Slot& slot,
                                       const Request& request, size_t index, size_t first_example);

}  // namespace embershard
