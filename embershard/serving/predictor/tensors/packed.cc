#include "tensors/packed.h"

#include "batching/request_validation.h"
#include "batching/truncation.h"

namespace embershard {
namespace {

Status CheckSize(const char* array, uint64_t expected, uint64_t got, const char* meaning) {
  if (expected == got) return {};
  return InvalidArgument(array, ": expected ", expected, " (", meaning, "), got ", got);
}

}  // namespace

Status SplitDense(const Schema& schema, Scope scope, const PackedArrays& packed,
                  const PackedNames& names, Request* request) {
  const bool shared = scope == Scope::kRequest;
  const Unaligned<float>& array = shared ? packed.request_dense : packed.example_dense;
  const size_t columns = shared ? schema.request_dense_columns : schema.example_dense_columns;
  const uint64_t rows = ListCount(scope, request->num_examples);
  RETURN_IF_ERROR(CheckSize(
      shared ? names.request_dense : names.example_dense, rows * columns, array.size(),
      shared ? "dense inputs in request scope" : "num_examples x dense inputs in example scope"));
  if (rows == 0) return {};
  for (size_t i = 0; i < schema.dense.size(); ++i) {
    const DenseInput& input = schema.dense[i];
    if (input.scope != scope) continue;
    request->dense[i] = {array.Slice(input.column, array.size() - input.column), columns};
  }
  return {};
}

Status SplitSparse(const Schema& schema, const PackedArrays& packed, const PackedNames& names,
                   Request* request) {
  uint64_t lists = 0;
  for (const SparseInput& input : schema.sparse) {
    lists += ListCount(input.scope, request->num_examples);
  }
  RETURN_IF_ERROR(
      CheckSize(names.lengths, lists, packed.lengths.size(), "one for each list of each input"));

  size_t list = 0;
  uint64_t value = 0;
  uint64_t weight = 0;
  for (size_t i = 0; i < schema.sparse.size(); ++i) {
    const SparseInput& input = schema.sparse[i];
    SparseView view;
    const size_t count = ListCount(input.scope, request->num_examples);
    view.lengths = packed.lengths.Slice(list, count);
    ASSIGN_OR_RETURN(const uint64_t sum, SumLengths(input, view.lengths));
    // Views never exceed their arrays. If the lengths do, the sums below are still counted, and the
    // request is refused.
    if (value + sum <= packed.values.size()) {
      view.values = packed.values.Slice(value, sum);
    }
    if (input.weighted && weight + sum <= packed.weights.size()) {
      view.weights = packed.weights.Slice(weight, sum);
    }
    list += count;
    value += sum;
    weight += input.weighted ? sum : 0;
    request->sparse[i] = view;
  }
  RETURN_IF_ERROR(CheckSize(names.values, value, packed.values.size(), "the sum of the lengths"));
  return CheckSize(names.weights, weight, packed.weights.size(),
                   "one for each value of the weighted inputs");
}

Status SplitPacked(const Schema& schema, const Limits& limits, const PackedArrays& packed,
                   Request* request, const PackedNames& names) {
  RETURN_IF_ERROR(CheckNumExamples(schema, limits, *request));
  request->dense.assign(schema.dense.size(), {});
  request->sparse.assign(schema.sparse.size(), {});
  RETURN_IF_ERROR(SplitDense(schema, Scope::kRequest, packed, names, request));
  RETURN_IF_ERROR(SplitDense(schema, Scope::kExample, packed, names, request));
  return SplitSparse(schema, packed, names, request);
}

}  // namespace embershard
