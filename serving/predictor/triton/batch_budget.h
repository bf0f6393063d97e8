// What Triton's dynamic batcher may put into one batch.
//
// Triton counts requests; what a batch costs are its examples and ids. A batch is closed by the
// request that would not fit any more, which begins the next. Execution cuts what is too large all
// the same: a batch that waits for its instance is asked about anew, without what it holds already.

#pragma once

#include "batching/batch_costs.h"
#include "batching/split_request.h"

namespace embershard::triton {

// Of one batch in the making. Not thread-safe.
class BatchBudget {
 public:
  explicit BatchBudget(const ChunkBudget& budget) : budget_(budget) {}

  // Whether a request of this size joins. The first always does: where it is too large for any
  // batch, it is to be cut or refused, not to wait for ever.
  bool Take(const BatchSize& size) {
    const bool fits =
        taken_.examples + size.examples <= budget_.examples && taken_.ids + size.ids <= budget_.ids;
    if (taken_.requests > 0 && !fits) return false;
    ++taken_.requests;
    taken_.examples += size.examples;
    taken_.ids += size.ids;
    return true;
  }

  const BatchSize& taken() const { return taken_; }

 private:
  ChunkBudget budget_;
  BatchSize taken_;
};

}  // namespace embershard::triton
