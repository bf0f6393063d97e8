#include "batching/packed.h"

#include <string>

#include "batching/door.h"
#include "batching/keep.h"

namespace embershard {
namespace {

Status CheckSize(const char* array, uint64_t expected, uint64_t got, const char* meaning) {
  if (expected == got) return {};
  return InvalidArgument("packed." + std::string(array) + ": expected " + std::to_string(expected) +
                         " (" + meaning + "), got " + std::to_string(got));
}

Status SplitDense(const Schema& schema, const PackedArrays& packed, Request* request) {
  Status status = CheckSize("request_dense", schema.request_dense_columns,
                            packed.request_dense.size(), "dense inputs in request scope");
  if (!status.ok()) return status;
  status =
      CheckSize("example_dense", uint64_t{request->num_examples} * schema.example_dense_columns,
                packed.example_dense.size(), "num_examples x dense inputs in example scope");
  if (!status.ok()) return status;

  request->dense.clear();
  for (const DenseInput& input : schema.dense) {
    if (input.scope == Scope::kRequest) {
      request->dense.push_back({packed.request_dense.Slice(input.column, 1), 1});
    } else if (request->num_examples == 0) {
      request->dense.emplace_back();
    } else {
      const size_t rest = packed.example_dense.size() - input.column;
      request->dense.push_back(
          {packed.example_dense.Slice(input.column, rest), schema.example_dense_columns});
    }
  }
  return {};
}

Status SplitSparse(const Schema& schema, const PackedArrays& packed, Request* request) {
  uint64_t lists = 0;
  for (const SparseInput& input : schema.sparse) {
    lists += ListCount(input.scope, request->num_examples);
  }
  Status status =
      CheckSize("lengths", lists, packed.lengths.size(), "one for each list of each input");
  if (!status.ok()) return status;

  request->sparse.clear();
  size_t list = 0;
  uint64_t value = 0;
  uint64_t weight = 0;
  for (const SparseInput& input : schema.sparse) {
    SparseView view;
    const size_t count = ListCount(input.scope, request->num_examples);
    view.lengths = packed.lengths.Slice(list, count);
    const Result<uint64_t> sum = SumLengths(input, view.lengths);
    if (!sum.ok()) return sum.status();
    // Views stay inside their arrays; what the lengths ask for beyond them is
    // counted on and refused below.
    if (value + *sum <= packed.values.size()) {
      view.values = packed.values.Slice(value, *sum);
    }
    if (input.weighted && weight + *sum <= packed.weights.size()) {
      view.weights = packed.weights.Slice(weight, *sum);
    }
    list += count;
    value += *sum;
    weight += input.weighted ? *sum : 0;
    request->sparse.push_back(view);
  }
  status = CheckSize("values", value, packed.values.size(), "the sum of the lengths");
  if (!status.ok()) return status;
  return CheckSize("weights", weight, packed.weights.size(),
                   "one for each value of the weighted inputs");
}

}  // namespace

Status SplitPacked(const Schema& schema, const Limits& limits, const PackedArrays& packed,
                   Request* request) {
  Status status = CheckNumExamples(schema, limits, *request);
  if (status.ok()) status = SplitDense(schema, packed, request);
  if (status.ok()) status = SplitSparse(schema, packed, request);
  return status;
}

}  // namespace embershard
