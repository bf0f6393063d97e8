#include "tensors/tensor_map.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "base/unaligned.h"
#include "batching/request_validation.h"
#include "tensors/find_names.h"
#include "tensors/packed.h"
#include "tensors/tensor_specs.h"

namespace embershard {
namespace {

constexpr PackedNames kPackedNames = {.request_dense = "tensor 'REQUEST_DENSE'",
                                      .example_dense = "tensor 'DENSE'",
                                      .lengths = "tensor 'LENGTHS'",
                                      .values = "tensor 'VALUES'",
                                      .weights = "tensor 'WEIGHTS'"};

std::string Tensor(std::string_view name) { return "tensor '" + std::string(name) + "': "; }

std::string Text(std::span<const int64_t> shape) {
  std::string text;
  for (const int64_t size : shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

size_t BytesOf(std::string_view datatype) { return datatype == kInt64 ? 8 : 4; }

// kInvalidArgument for a negative size or too many values.
Result<uint64_t> CountValues(const InputTensor& tensor) {
  uint64_t count = 1;
  bool overflow = false;
  for (const int64_t size : tensor.shape) {
    if (size < 0) {
      return InvalidArgument(Tensor(tensor.name), "expected sizes of at least 0, got ",
                             Text(tensor.shape));
    }
    overflow = overflow || __builtin_mul_overflow(count, static_cast<uint64_t>(size), &count);
  }
  if (overflow || count > std::numeric_limits<int64_t>::max() / sizeof(int64_t)) {
    return InvalidArgument(Tensor(tensor.name), "expected fewer than 2^60 values, got shape ",
                           Text(tensor.shape));
  }
  return count;
}

// Any number of other dimensions may be 1.
bool IsRow(std::span<const int64_t> shape) {
  return !shape.empty() &&
         std::count_if(shape.begin(), shape.end(), [](int64_t size) { return size != 1; }) <= 1;
}

// There may be an additional first dimension of 1.
bool IsMatrix(std::span<const int64_t> shape, int64_t columns) {
  if (shape.size() == 3 && shape[0] == 1) shape = shape.subspan(1);
  return shape.size() == 2 && shape[1] == columns;
}

// Keeps a request's bytes alive, and one joined tensor.
struct JoinedTensor {
  std::shared_ptr<const void> others;
  std::string bytes;
};

std::string_view JoinBuffers(const InputTensor& tensor, Request* request) {
  if (tensor.buffers.empty()) return {};
  if (tensor.buffers.size() == 1) return tensor.buffers[0];
  auto joined = std::make_shared<JoinedTensor>();
  for (const std::string_view buffer : tensor.buffers) joined->bytes += buffer;
  joined->others = std::move(request->bytes);
  request->bytes = joined;
  return joined->bytes;
}

std::string_view WithoutSuffix(std::string_view name, std::string_view suffix) {
  return name.ends_with(suffix) ? name.substr(0, name.size() - suffix.size()) : std::string_view();
}

}  // namespace

// Tensors by slot.
class TensorMap::ReceivedTensors {
 public:
  explicit ReceivedTensors(size_t slots) : bytes_(slots), counts_(slots, kAbsent) {}

  bool Has(size_t slot) const { return counts_[slot] != kAbsent; }
  void Set(size_t slot, std::string_view bytes, uint64_t count) {
    bytes_[slot] = bytes;
    counts_[slot] = count;
  }
  // REQUIRES: Has(slot).
  uint64_t Count(size_t slot) const { return counts_[slot]; }
  template <class T>
  Unaligned<T> View(size_t slot) const {
    return Unaligned<T>(bytes_[slot].data(), bytes_[slot].size() / sizeof(T));
  }

 private:
  static constexpr uint64_t kAbsent = std::numeric_limits<uint64_t>::max();

  std::vector<std::string_view> bytes_;
  std::vector<uint64_t> counts_;
};

TensorMap::TensorMap(const Schema* schema, const SchemaNames* names, const Limits* limits)
    : schema_(*schema), names_(*names), limits_(*limits) {
  slots_.reserve(schema_.dense.size() + kSparseSlots * schema_.sparse.size() + kPackedSlots);
  for (const DenseInput& input : schema_.dense) AddSlot({input.name, kFp32, input.name});
  for (const SparseInput& input : schema_.sparse) {
    AddSlot({input.name + std::string(kValuesSuffix), kInt64, input.name});
    AddSlot({input.name + std::string(kLengthsSuffix), kInt32, input.name});
    AddSlot({input.name + std::string(kWeightsSuffix), kFp32, input.name});
  }
  const auto columns = static_cast<int64_t>(schema_.example_dense_columns);
  AddSlot({.name = std::string(kDense), .datatype = kFp32, .columns = columns});
  AddSlot({.name = std::string(kRequestDense), .datatype = kFp32});
  AddSlot({.name = std::string(kLengths), .datatype = kInt32});
  AddSlot({.name = std::string(kValues), .datatype = kInt64});
  AddSlot({.name = std::string(kWeights), .datatype = kFp32});
}

void TensorMap::AddSlot(Slot slot) {
  slots_.push_back(std::move(slot));
  slots_by_name_.emplace(slots_.back().name, slots_.size() - 1);  // The first slot of a name wins.
}

size_t TensorMap::SlotOf(size_t sparse_input, SparseSlot part) const {
  return schema_.dense.size() + kSparseSlots * sparse_input + part;
}

size_t TensorMap::SlotOf(PackedSlot part) const { return slots_.size() - kPackedSlots + part; }

Status TensorMap::Parse(const TensorRequest& tensors, Request* request) const {
  if (tensors.priority < 0 || tensors.priority > 2) {
    return InvalidArgument("priority: expected 0..2, got ", tensors.priority);
  }
  request->priority = tensors.priority == 2 ? Priority::kBackground : Priority::kInteractive;
  ASSIGN_OR_RETURN(request->outputs_wanted, FindOutputs(schema_, names_, tensors.outputs));

  ReceivedTensors received(slots_.size());
  for (const InputTensor& tensor : tensors.inputs) {
    RETURN_IF_ERROR(AddTensor(tensor, request, &received));
  }
  RETURN_IF_ERROR(CheckLengths(received));
  const int64_t examples = tensors.num_examples.value_or(CountExamples(received));
  if (examples < 0 || examples > std::numeric_limits<uint32_t>::max()) {
    return InvalidArgument("num_examples: expected 1..", limits_.max_examples, ", got ", examples);
  }
  request->num_examples = static_cast<uint32_t>(examples);
  RETURN_IF_ERROR(CheckNumExamples(schema_, limits_, *request));
  RETURN_IF_ERROR(FillDense(received, request));
  return FillSparse(received, request);
}

Status TensorMap::AddTensor(const InputTensor& tensor, Request* request,
                            ReceivedTensors* received) const {
  ASSIGN_OR_RETURN(const size_t index, Find(tensor.name));
  const Slot& slot = slots_[index];
  if (received->Has(index)) {
    return slot.feature.empty() ? InvalidArgument(Tensor(tensor.name), "given twice, expected once")
                                : GivenTwice(std::string(slot.feature));
  }
  if (tensor.datatype != slot.datatype) {
    return InvalidArgument(Tensor(tensor.name), "expected datatype ", slot.datatype, ", got '",
                           tensor.datatype, "'");
  }
  ASSIGN_OR_RETURN(const uint64_t count, CountValues(tensor));
  if (slot.columns > 0 && !IsMatrix(tensor.shape, slot.columns)) {
    return InvalidArgument(Tensor(tensor.name), "expected shape [-1, ", slot.columns, "], got ",
                           Text(tensor.shape));
  }
  if (slot.columns == 0 && !IsRow(tensor.shape)) {
    return InvalidArgument(Tensor(tensor.name), "expected shape [-1], got ", Text(tensor.shape));
  }
  const std::string_view bytes = JoinBuffers(tensor, request);
  if (bytes.size() != count * BytesOf(slot.datatype)) {
    return InvalidArgument(Tensor(tensor.name), "expected ", count * BytesOf(slot.datatype),
                           " bytes for ", slot.datatype, " ", Text(tensor.shape), ", got ",
                           bytes.size());
  }
  received->Set(index, bytes, count);
  return {};
}

Result<size_t> TensorMap::Find(std::string_view name) const {
  const auto slot = slots_by_name_.find(name);
  if (slot != slots_by_name_.end()) return slot->second;
  for (const std::string_view suffix : {kValuesSuffix, kLengthsSuffix, kWeightsSuffix}) {
    const std::string_view feature = WithoutSuffix(name, suffix);
    if (!feature.empty()) return FindSparse(schema_, names_, feature);
  }
  return UnknownTensor(schema_, name);
}

// Values without lengths would count as 0 examples, and no message would name the tensor.
Status TensorMap::CheckLengths(const ReceivedTensors& received) const {
  const auto check = [&](size_t values, size_t lengths) -> Status {
    if (received.Has(lengths) || !received.Has(values) || received.Count(values) == 0) return {};
    return InvalidArgument(Tensor(slots_[lengths].name), "expected together with '",
                           slots_[values].name, "', got none");
  };
  RETURN_IF_ERROR(check(SlotOf(kAllValues), SlotOf(kAllLengths)));
  for (size_t i = 0; i < schema_.sparse.size(); ++i) {
    RETURN_IF_ERROR(check(SlotOf(i, kOwnValues), SlotOf(i, kOwnLengths)));
  }
  return {};
}

int64_t TensorMap::CountExamples(const ReceivedTensors& received) const {
  if (const size_t slot = SlotOf(kAllExampleDense);
      received.Has(slot) && slots_[slot].columns > 0) {
    return static_cast<int64_t>(received.Count(slot)) / slots_[slot].columns;
  }
  for (size_t i = 0; i < schema_.dense.size(); ++i) {
    if (schema_.dense[i].scope == Scope::kRequest || !received.Has(i)) continue;
    return static_cast<int64_t>(received.Count(i));
  }
  uint64_t request_inputs = 0;
  for (size_t i = 0; i < schema_.sparse.size(); ++i) {
    request_inputs += schema_.sparse[i].scope == Scope::kRequest ? 1 : 0;
    const size_t slot = SlotOf(i, kOwnLengths);
    if (schema_.sparse[i].scope == Scope::kRequest || !received.Has(slot)) continue;
    return static_cast<int64_t>(received.Count(slot));
  }
  const uint64_t lists =
      received.Has(SlotOf(kAllLengths)) ? received.Count(SlotOf(kAllLengths)) : 0;
  const uint64_t example_inputs = schema_.sparse.size() - request_inputs;
  return example_inputs == 0 || lists < request_inputs
             ? 0
             : static_cast<int64_t>((lists - request_inputs) / example_inputs);
}

Status TensorMap::FillDense(const ReceivedTensors& received, Request* request) const {
  request->dense.assign(schema_.dense.size(), {});
  const bool is_packed[] = {received.Has(SlotOf(kAllExampleDense)),
                            received.Has(SlotOf(kAllRequestDense))};
  for (size_t i = 0; i < schema_.dense.size(); ++i) {
    const DenseInput& input = schema_.dense[i];
    if (!received.Has(i)) continue;
    if (is_packed[input.scope == Scope::kRequest ? 1 : 0]) return GivenTwice(input.name);
    request->dense[i].values = received.View<float>(i);
  }
  PackedArrays packed;
  packed.example_dense = received.View<float>(SlotOf(kAllExampleDense));
  packed.request_dense = received.View<float>(SlotOf(kAllRequestDense));
  Status status;
  if (is_packed[0]) status = SplitDense(schema_, Scope::kExample, packed, kPackedNames, request);
  if (status.ok() && is_packed[1])
    status = SplitDense(schema_, Scope::kRequest, packed, kPackedNames, request);
  return status;
}

Status TensorMap::FillSparse(const ReceivedTensors& received, Request* request) const {
  request->sparse.assign(schema_.sparse.size(), {});
  const bool all = received.Has(SlotOf(kAllLengths)) || received.Has(SlotOf(kAllValues)) ||
                   received.Has(SlotOf(kAllWeights));
  for (size_t i = 0; i < schema_.sparse.size(); ++i) {
    const size_t slot = SlotOf(i, kOwnValues);
    if (!received.Has(slot) && !received.Has(SlotOf(i, kOwnLengths)) &&
        !received.Has(SlotOf(i, kOwnWeights)))
      continue;
    if (all) return GivenTwice(schema_.sparse[i].name);
    SparseView& view = request->sparse[i];
    view.lengths = received.View<int32_t>(SlotOf(i, kOwnLengths));
    view.values = received.View<int64_t>(slot);
    view.weights = received.View<float>(SlotOf(i, kOwnWeights));
  }
  if (!all) return {};
  PackedArrays packed;
  packed.lengths = received.View<int32_t>(SlotOf(kAllLengths));
  packed.values = received.View<int64_t>(SlotOf(kAllValues));
  packed.weights = received.View<float>(SlotOf(kAllWeights));
  return SplitSparse(schema_, packed, kPackedNames, request);
}

BatchSize TensorMap::SizeOf(std::span<const InputTensor> inputs,
                            std::optional<int64_t> num_examples) const {
  BatchSize size = {.requests = 1};
  ReceivedTensors received(slots_.size());
  for (const InputTensor& tensor : inputs) {
    const auto slot = slots_by_name_.find(tensor.name);
    const Result<uint64_t> count = CountValues(tensor);
    if (slot == slots_by_name_.end() || !count.ok()) continue;
    received.Set(slot->second, {}, *count);
    if (slots_[slot->second].datatype == kInt64) size.ids += *count;
  }
  size.examples =
      static_cast<uint64_t>(std::max<int64_t>(num_examples.value_or(CountExamples(received)), 0));
  return size;
}

bool TensorMap::IsBatchOfOne(std::span<const InputTensor> inputs) const {
  return !inputs.empty() && std::ranges::all_of(inputs, [this](const InputTensor& tensor) {
    const auto slot = slots_by_name_.find(tensor.name);
    if (slot == slots_by_name_.end()) return false;
    const size_t dimensions = slots_[slot->second].columns > 0 ? 2 : 1;
    return tensor.shape.size() == dimensions + 1 && tensor.shape[0] == 1;
  });
}

OutputTensor TensorMap::Answer(const ResponseOutput& output, uint32_t num_examples,
                               bool is_batch_of_one) const {
  const OutputSpec& spec = schema_.outputs[output.output];
  OutputTensor tensor;
  tensor.name = spec.name;
  if (is_batch_of_one) tensor.shape.push_back(1);
  tensor.shape.push_back(spec.scope == Scope::kRequest ? 1 : num_examples);
  tensor.shape.insert(tensor.shape.end(), spec.shape.begin(), spec.shape.end());
  tensor.bytes = {reinterpret_cast<const char*>(output.values.data()),
                  output.values.size() * sizeof(float)};
  return tensor;
}

}  // namespace embershard
