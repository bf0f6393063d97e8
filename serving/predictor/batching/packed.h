// The packed form of a request: one array a kind, cut into views of each input.

#ifndef EMBERSHARD_BATCHING_PACKED_H_
#define EMBERSHARD_BATCHING_PACKED_H_

#include <cstdint>

#include "base/status.h"
#include "base/unaligned.h"
#include "batching/request.h"
#include "package/manifest.h"

namespace embershard {

// Inputs in the order of the schema. N examples; F_r, F_e: dense inputs in request
// and in example scope.
struct PackedArrays {
  Unaligned<float> request_dense;  // [F_r]
  Unaligned<float> example_dense;  // [N, F_e]
  Unaligned<int32_t> lengths;      // Per sparse input: 1 (request scope) or N.
  Unaligned<int64_t> values;       // All sparse inputs, one behind the other.
  Unaligned<float> weights;        // For the values of the weighted inputs.
};

// Fills the views of `request`, whose num_examples and outputs_wanted are set. Refuses what cannot
// be cut with kInvalidArgument; the rest is the door's work.
Status SplitPacked(const Schema& schema, const Limits& limits, const PackedArrays& packed,
                   Request* request);

}  // namespace embershard

#endif  // EMBERSHARD_BATCHING_PACKED_H_
