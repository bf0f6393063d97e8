#include "batching/builder.h"

#include "batching/truncation.h"

namespace embershard {
namespace {

using Requests = std::span<const std::unique_ptr<Request>>;

void BuildRequestOfExample(Requests requests, Slot* slot) {
  slot->requests = requests.size();
  slot->request_of_example.clear();
  for (size_t r = 0; r < requests.size(); ++r) {
    slot->request_of_example.insert(slot->request_of_example.end(), requests[r]->num_examples,
                                    static_cast<int64_t>(r));
  }
  // Some programs cannot run on zero examples. If no request has any, the first gets an empty one,
  // whose outputs are dropped.
  if (slot->request_of_example.empty()) slot->request_of_example.push_back(0);
  slot->examples = slot->request_of_example.size();
}

// Fills one column of its scope's matrix; `out` is the column's first cell.
void BuildDenseColumn(const DenseInput& input, size_t feature, Requests requests, size_t columns,
                      float* out) {
  for (const auto& request : requests) {
    const DenseView& view = request->dense[feature];
    const size_t count = ListCount(input.scope, request->num_examples);
    for (size_t i = 0; i < count; ++i, out += columns) {
      *out = view.values.empty() ? *input.default_value : view.values[i * view.stride];
    }
  }
}

void BuildDense(const Schema& schema, Requests requests, Slot* slot) {
  slot->request_dense.resize(slot->requests * schema.request_dense_columns);
  slot->example_dense.assign(slot->examples * schema.example_dense_columns, 0);
  for (size_t i = 0; i < schema.dense.size(); ++i) {
    const DenseInput& input = schema.dense[i];
    const bool shared = input.scope == Scope::kRequest;
    const size_t columns = shared ? schema.request_dense_columns : schema.example_dense_columns;
    std::vector<float>& matrix = shared ? slot->request_dense : slot->example_dense;
    BuildDenseColumn(input, i, requests, columns, matrix.data() + input.column);
  }
}

// Prepares an input for `bags` lists; lists that no request has are empty.
void BuildOffsets(const SparseInput& input, size_t feature, Requests requests, size_t bags,
                  std::vector<int64_t>* offsets) {
  offsets->assign(1, 0);
  int64_t total = 0;
  for (const auto& request : requests) {
    const SparseView& view = request->sparse[feature];
    const size_t lists = ListCount(input.scope, request->num_examples);
    for (size_t list = 0; list < lists; ++list) {
      if (!view.lengths.empty()) {
        const auto length = static_cast<size_t>(view.lengths[list]);
        total += static_cast<int64_t>(Truncate(input, length).count);
      }
      offsets->push_back(total);
    }
  }
  offsets->resize(bags + 1, total);
}

struct SparseTarget {
  int64_t* rows = nullptr;
  float* weights = nullptr;  // Null where unweighted.
};

// Maps a run of ids and copies its weights. Returns how many ids were unknown.
size_t CopyRun(const IdMap& id_map, const SparseView& view, IdRange run, SparseTarget* target) {
  const size_t unknown = id_map.Map(view.values.Slice(run.first, run.count), target->rows);
  target->rows += run.count;
  if (target->weights != nullptr) {
    view.weights.Slice(run.first, run.count).CopyTo(target->weights);
    target->weights += run.count;
  }
  return unknown;
}

// The same for all lists of a request, whose truncated lists have `kept` ids.
size_t CopyLists(const SparseInput& input, const IdMap& id_map, const SparseView& view, size_t kept,
                 SparseTarget target) {
  if (kept == view.values.size()) return CopyRun(id_map, view, {0, kept}, &target);
  size_t unknown = 0;
  size_t begin = 0;
  for (size_t list = 0; list < view.lengths.size(); ++list) {
    const auto length = static_cast<size_t>(view.lengths[list]);
    const IdRange run = Truncate(input, length);
    unknown += CopyRun(id_map, view, {begin + run.first, run.count}, &target);
    begin += length;
  }
  return unknown;
}

void BuildSparse(const SparseInput& input, const IdMap& id_map, size_t feature, Requests requests,
                 size_t bags_in_all, SlotSparse* out,
                 std::vector<std::vector<UnknownIdCount>>* unknown_ids) {
  BuildOffsets(input, feature, requests, bags_in_all, &out->offsets);
  const auto total = static_cast<size_t>(out->offsets.back());
  out->rows.resize(total);
  out->weights.resize(input.weighted ? total : 0);

  size_t bag = 0;
  for (size_t r = 0; r < requests.size(); ++r) {
    const size_t bags = ListCount(input.scope, requests[r]->num_examples);
    const int64_t begin = out->offsets[bag];
    const int64_t kept = out->offsets[bag + bags] - begin;
    bag += bags;
    if (kept == 0) continue;
    const SparseTarget target = {out->rows.data() + begin,
                                 input.weighted ? out->weights.data() + begin : nullptr};
    const size_t unknown =
        CopyLists(input, id_map, requests[r]->sparse[feature], static_cast<size_t>(kept), target);
    if (unknown > 0) (*unknown_ids)[r].push_back({feature, unknown});
  }
}

}  // namespace

void BuildBatch(const Model& model, Requests requests, Slot* slot,
                std::vector<std::vector<UnknownIdCount>>* unknown_ids) {
  const Schema& schema = model.manifest().schema;
  unknown_ids->assign(requests.size(), {});
  BuildRequestOfExample(requests, slot);
  BuildDense(schema, requests, slot);
  slot->sparse.resize(schema.sparse.size());
  for (size_t i = 0; i < schema.sparse.size(); ++i) {
    const size_t bags = schema.sparse[i].scope == Scope::kRequest ? slot->requests : slot->examples;
    BuildSparse(schema.sparse[i], model.id_map(i), i, requests, bags, &slot->sparse[i],
                unknown_ids);
  }
}

std::vector<ResponseOutput> CutOutputs(const Schema& schema, const Slot& slot,
                                       const Request& request, size_t index, size_t first_example) {
  std::vector<ResponseOutput> outputs;
  outputs.reserve(request.outputs_wanted.size());
  for (const size_t wanted : request.outputs_wanted) {
    const OutputSpec& spec = schema.outputs[wanted];
    const size_t first = spec.scope == Scope::kRequest ? index : first_example;
    const size_t count = ListCount(spec.scope, request.num_examples);
    const auto begin = slot.outputs[wanted].begin() + static_cast<ptrdiff_t>(first * spec.width);
    const auto end = begin + static_cast<ptrdiff_t>(count * spec.width);
    outputs.push_back({wanted, std::vector<float>(begin, end)});
  }
  return outputs;
}

}  // namespace embershard
