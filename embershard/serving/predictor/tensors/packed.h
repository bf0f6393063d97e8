// The packed form of a request: one array a kind, cut into views of each input.

#pragma once

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
  Unaligned<int64_t> values;       // All sparse inputs, concatenated.
  Unaligned<float> weights;        // For the values of the weighted inputs.
};

// What refusals call the arrays.
struct PackedNames {
  const char* request_dense = "packed.request_dense";
  const char* example_dense = "packed.example_dense";
  const char* lengths = "packed.lengths";
  const char* values = "packed.values";
  const char* weights = "packed.weights";
};

// Fills the views of `request`, whose num_examples and outputs_wanted are set. Refuses what cannot
// be cut with kInvalidArgument; the rest is left to CheckRequest().
Status SplitPacked(const Schema& schema, const Limits& limits, const PackedArrays& packed,
                   Request* request, const PackedNames& names = {});

// Its parts, for who packs some inputs and names others: each fills the views of its inputs alone.
// REQUIRES: CheckNumExamples() was ok, and `request` has a view for each input.
Status SplitDense(const Schema& schema, Scope scope, const PackedArrays& packed,
                  const PackedNames& names, Request* request);
Status SplitSparse(const Schema& schema, const PackedArrays& packed, const PackedNames& names,
                   Request* request);

}  // namespace embershard
