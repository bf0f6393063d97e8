// Converts between a model's tensors and its requests, for all protocols with tensors.

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

struct TensorRequest {
  std::span<const InputTensor> inputs;
  std::span<const std::string_view> outputs;  // Names of the wanted outputs. Empty: all.

  // If absent, the number follows from the inputs in example scope. Most clients do not send it.
  std::optional<int64_t> num_examples = {};

  int64_t priority = 0;  // 0: default, 1: interactive, 2: batch.
};

// Immutable, thus thread-safe.
class TensorMap {
 public:
  // `names` are those of the schema. `limits` apply to one request. All must outlive this.
  TensorMap(const Schema* schema, const SchemaNames* names, const Limits* limits);

  // Fills num_examples, priority, outputs_wanted and the views, which point into the tensors'
  // bytes. A tensor in several buffers is joined, and `request->bytes` keeps the joined bytes
  // alive, too. Fails for wrong names, types or shapes, for bytes that do not match the shape, and
  // for an input that is sent in two ways. CheckRequest() checks everything else.
  Status Parse(const TensorRequest& tensors, Request* request) const;

  // Size of a request from names and shapes only. Includes tensors that Parse() will refuse, if
  // their shapes are valid. `num_examples`: see TensorRequest.
  BatchSize SizeOf(std::span<const InputTensor> inputs, std::optional<int64_t> num_examples) const;

  // True if every tensor has an additional first dimension of 1, which some clients send. The
  // outputs of such a request also have that dimension.
  bool IsBatchOfOne(std::span<const InputTensor> inputs) const;

  // The bytes are a view into `output`.
  OutputTensor Answer(const ResponseOutput& output, uint32_t num_examples,
                      bool is_batch_of_one) const;

 private:
  // An input tensor that the model accepts.
  struct Slot {
    std::string name;
    std::string_view datatype;
    std::string_view feature = {};  // The input that it belongs to. Empty if it packs several.
    int64_t columns = 0;            // Columns of a matrix. 0 if it has one dimension.
  };
  // Order of the slots: one for each dense input, three for each sparse input in the order of
  // SparseSlot, and then the packed tensors in the order of PackedSlot.
  enum SparseSlot : size_t { kOwnValues, kOwnLengths, kOwnWeights, kSparseSlots };
  enum PackedSlot : size_t {
    kAllExampleDense,
    kAllRequestDense,
    kAllLengths,
    kAllValues,
    kAllWeights,
    kPackedSlots
  };
  class ReceivedTensors;
  size_t SlotOf(size_t sparse_input, SparseSlot part) const;
  size_t SlotOf(PackedSlot part) const;
  void AddSlot(Slot slot);
  Result<size_t> Find(std::string_view name) const;
  Status AddTensor(const InputTensor& tensor, Request* request, ReceivedTensors* received) const;
  Status CheckLengths(const ReceivedTensors& received) const;
  int64_t CountExamples(const ReceivedTensors& received) const;
  Status FillDense(const ReceivedTensors& received, Request* request) const;
  Status FillSparse(const ReceivedTensors& received, Request* request) const;

  const Schema& schema_;
  const SchemaNames& names_;
  const Limits& limits_;
  std::vector<Slot> slots_;
  std::unordered_map<std::string_view, size_t> slots_by_name_;  // Names are views into slots_.
};

}  // namespace embershard
