// The packed form of a request, with one array for each kind of data.

#pragma once

#include <cstdint>

#include "base/status.h"
#include "base/unaligned.h"
#include "batching/request.h"
#include "package/manifest.h"

namespace embershard {

// Inputs are in the order of the schema. There are N examples, F_r dense inputs in request scope
// and F_e dense inputs in example scope.
struct PackedArrays {
  Unaligned<float> request_dense;  // [F_r]
  Unaligned<float> example_dense;  // [N, F_e]
  Unaligned<int32_t> lengths;      // 1 for each sparse input in request scope, N in example scope.
  Unaligned<int64_t> values;       // Values of all sparse inputs, concatenated.
  Unaligned<float> weights;        // One for each value of the weighted inputs.
};

// Names of the arrays in error messages.
struct PackedNames {
  const char* request_dense = "packed.request_dense";
  const char* example_dense = "packed.example_dense";
  const char* lengths = "packed.lengths";
  const char* values = "packed.values";
  const char* weights = "packed.weights";
};

// Fills the views of `request`. Its num_examples and outputs_wanted must be set. Fails with
// kInvalidArgument if arrays cannot be split. CheckRequest() checks everything else.
Status SplitPacked(const Schema& schema, const Limits& limits, const PackedArrays& packed,
                   Request* request, const PackedNames& names = {});

// The parts of SplitPacked(), for requests that pack only some inputs. Each fills only the views of
// its inputs. REQUIRES: CheckNumExamples() was ok, and `request` has a view for each input.
Status SplitDense(const Schema& schema, Scope scope, const PackedArrays& packed,
                  const PackedNames& names, Request* request);
Status SplitSparse(const Schema& schema, const PackedArrays& packed, const PackedNames& names,
                   Request* request);

}  // namespace embershard
