// Merges checked requests into one slot and cuts the slot's outputs into answers.

#pragma once

#include <memory>
#include <span>
#include <vector>

#include "batching/request.h"
#include "model/model.h"
#include "model/slot.h"

namespace embershard {

// Fills the builder's half of `slot`, feature by feature: one copy per request and
// feature, ids mapped to rows on the way, max_ids applied. Writes each request's
// unknown ids to `unknown_ids`, one list a request.
// REQUIRES: every request passed CheckRequest() with this model.
void BuildBatch(const Model& model, std::span<const std::unique_ptr<Request>> requests, Slot* slot,
                std::vector<std::vector<UnknownIdCount>>* unknown_ids);

// The outputs of the `index`-th request of a batch that has been run, of which
// the first example stands at `first_example`.
std::vector<ResponseOutput> CutOutputs(const Schema& schema, const Slot& slot,
                                       const Request& request, size_t index, size_t first_example);

}  // namespace embershard
