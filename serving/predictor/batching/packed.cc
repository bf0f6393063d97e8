#include "batching/packed.h"

#include "batching/request_validation.h"
#include "batching/truncation.h"

namespace embershard {
namespace {

Status CheckSize(const char* array, uint64_t expected, uint64_t got, const char* meaning) {
  if (expected == got) return {};
  return InvalidArgument(array, ": expected ", expected, " (", meaning, "), got ", got);
}

}  // namespace

Status SplitRequestDense(const Schema& schema, const PackedArrays& packed, const PackedNames& names,
                         Request* request) {
  RETURN_IF_ERROR(CheckSize(names.request_dense, schema.request_dense_columns,
                            packed.request_dense.size(), "dense inputs in request scope"));
  for (size_t i = 0; i < schema.dense.size(); ++i) {
    const DenseInput& input = schema.dense[i];
    if (input.scope != Scope::kRequest) continue;
    request->dense[i] = {packed.request_dense.Slice(input.column, 1), 1};
  }
  return {};
}

Status SplitExampleDense(const Schema& schema, const PackedArrays& packed, const PackedNames& names,
                         Request* request) {
  Status status =
      CheckSize(names.example_dense, uint64_t{request->num_examples} * schema.example_dense_columns,
                packed.example_dense.size(), "num_examples x dense inputs in example scope");
  if (!status.ok() || request->num_examples == 0) return status;
  for (size_t i = 0; i < schema.dense.size(); ++i) {
    const DenseInput& input = schema.dense[i];
    if (input.scope == Scope::kRequest) continue;
    const size_t rest = packed.example_dense.size() - input.column;
    request->dense[i] = {packed.example_dense.Slice(input.column, rest),
                         schema.example_dense_columns};
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
    // Views stay inside their arrays; what the lengths ask for beyond them is
    // counted on and refused below.
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
  RETURN_IF_ERROR(SplitRequestDense(schema, packed, names, request));
  RETURN_IF_ERROR(SplitExampleDense(schema, packed, names, request));
  return SplitSparse(schema, packed, names, request);
}

}  // namespace embershard
