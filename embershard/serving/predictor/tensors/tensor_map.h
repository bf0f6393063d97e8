// The one mapping between a model's tensors and its requests, for every protocol that speaks of
// tensors.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "batching/batch_costs.h"
#include "batching/request.h"
#include "package/manifest.h"
#include "tensors/find_names.h"
#include "tensors/tensor_specs.h"

namespace embershard {

// What a request says. Owns nothing.
struct TensorRequest {
  std::span<const InputTensor> inputs;
  std::span<const std::string_view> outputs;  // Names of those wanted. Empty: all.

  // Absent: as many as the inputs in example scope have, which is all that most clients say.
  std::optional<int64_t> num_examples = {};

  int64_t priority = 0;  // 0: default, 1: interactive, 2: batch.
};

// Immutable: any thread may call.
class TensorMap {
 public:
  // `names`: of the schema. `limits`: of one request. Owns none of them; they must outlive it.
  TensorMap(const Schema* schema, const SchemaNames* names, const Limits* limits);

  // Fills num_examples, priority, outputs_wanted and the views, which lie over the tensors' bytes;
  // a tensor in several buffers is joined, and kept by `request->bytes` beside what that held.
  // Refuses what the tensors alone show to be wrong: names, types, shapes, bytes that do not
  // agree with them, an input given in two ways. The rest is left to CheckRequest().
  Status Parse(const TensorRequest& tensors, Request* request) const;

  // What the tensors hold, from their names and shapes alone: nobody has looked at the values yet.
  // Tensors that Parse() refuses count as far as their shapes do. `stated`: as num_examples above.
  BatchSize SizeOf(std::span<const InputTensor> inputs, std::optional<int64_t> stated) const;

  // Whether each tensor has a dimension of one before its own: a batch of one request, to those
  // who say so. Such a request's outputs have that dimension too.
  bool IsBatchOfOne(std::span<const InputTensor> inputs) const;

  // Lies over `output`.
  OutputTensor Answer(const ResponseOutput& output, uint32_t num_examples,
                      bool is_batch_of_one) const;

 private:
  // A tensor that the model knows.
  struct Slot {
    std::string name;
    std::string_view datatype;
    std::string_view feature = {};  // Whose it is. Empty: that of many.
    int64_t columns = 0;            // Of a matrix. 0: it has one dimension.
  };
  // Where the slots of the inputs begin; each sparse input has three, in the order of SparseSlot.
  // Those of all inputs come last, in the order of PackedSlot.
  enum SparseSlot : size_t { kOwnValues, kOwnLengths, kOwnWeights, kSparseSlots };
  enum PackedSlot : size_t {
    kAllExampleDense,
    kAllRequestDense,
    kAllLengths,
    kAllValues,
    kAllWeights,
    kPackedSlots
  };
  class Given;

  size_t SlotOf(size_t sparse_input, SparseSlot part) const;
  size_t SlotOf(PackedSlot all) const;
  void AddSlot(Slot slot);
  Result<size_t> Find(std::string_view name) const;
  Status Take(const InputTensor& tensor, Request* request, Given* given) const;
  Status CheckLengths(const Given& given) const;
  int64_t CountExamples(const Given& given) const;
  Status FillDense(const Given& given, Request* request) const;
  Status FillSparse(const Given& given, Request* request) const;

  const Schema& schema_;
  const SchemaNames& names_;
  const Limits& limits_;
  std::vector<Slot> slots_;
  std::unordered_map<std::string_view, size_t> slot_of_;  // By name, which lies in slots_.
};

}  // namespace embershard
