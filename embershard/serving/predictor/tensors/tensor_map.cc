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

// How many values a shape has. kInvalidArgument: a negative size, or too many to count.
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
    return InvalidArgument(Tensor(tensor.name), "expected a shape that can be counted, got ",
                           Text(tensor.shape));
  }
  return count;
}

// A row of values, with any number of dimensions of one value around it.
bool IsRow(std::span<const int64_t> shape) {
  return !shape.empty() &&
         std::count_if(shape.begin(), shape.end(), [](int64_t size) { return size != 1; }) <= 1;
}

// Rows of so many columns, with or without one dimension of one value before them.
bool IsMatrix(std::span<const int64_t> shape, int64_t columns) {
  if (shape.size() == 3 && shape[0] == 1) shape = shape.subspan(1);
  return shape.size() == 2 && shape[1] == columns;
}

// What keeps a request's bytes, and one tensor more.
struct Joined {
  std::shared_ptr<const void> others;
  std::string bytes;
};

// The bytes of a tensor, as one buffer.
std::string_view WholeOf(const InputTensor& tensor, Request* request) {
  if (tensor.buffers.empty()) return {};
  if (tensor.buffers.size() == 1) return tensor.buffers[0];
  auto joined = std::make_shared<Joined>();
  for (const std::string_view buffer : tensor.buffers) joined->bytes += buffer;
  joined->others = std::move(request->bytes);
  request->bytes = joined;
  return joined->bytes;
}

std::string_view WithoutSuffix(std::string_view name, std::string_view suffix) {
  return name.ends_with(suffix) ? name.substr(0, name.size() - suffix.size()) : std::string_view();
}

}  // namespace

// The tensors of one request, by slot.
class TensorMap::Given {
 public:
  explicit Given(size_t slots) : bytes_(slots), counts_(slots, kAbsent) {}

  bool Has(size_t slot) const { return counts_[slot] != kAbsent; }
  void Set(size_t slot, std::string_view bytes, uint64_t count) {
    bytes_[slot] = bytes;
    counts_[slot] = count;
  }
  // How many values there are. REQUIRES: Has(slot).
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
  slot_of_.emplace(slots_.back().name, slots_.size() - 1);  // The first of a name has it.
}

size_t TensorMap::SlotOf(size_t sparse_input, SparseSlot part) const {
  return schema_.dense.size() + kSparseSlots * sparse_input + part;
}

size_t TensorMap::SlotOf(PackedSlot all) const { return slots_.size() - kPackedSlots + all; }

Status TensorMap::Parse(const TensorRequest& tensors, Request* request) const {
  if (tensors.priority < 0 || tensors.priority > 2) {
    return InvalidArgument("priority: expected 0..2, got ", tensors.priority);
  }
  request->priority = tensors.priority == 2 ? Priority::kBackground : Priority::kInteractive;
  ASSIGN_OR_RETURN(request->outputs_wanted, FindOutputs(schema_, names_, tensors.outputs));

  Given given(slots_.size());
  for (const InputTensor& tensor : tensors.inputs) {
    RETURN_IF_ERROR(Take(tensor, request, &given));
  }
  RETURN_IF_ERROR(CheckLengths(given));
  const int64_t examples = tensors.num_examples.value_or(CountExamples(given));
  if (examples < 0 || examples > std::numeric_limits<uint32_t>::max()) {
    return InvalidArgument("num_examples: expected 1..", limits_.max_examples, ", got ", examples);
  }
  request->num_examples = static_cast<uint32_t>(examples);
  RETURN_IF_ERROR(CheckNumExamples(schema_, limits_, *request));
  RETURN_IF_ERROR(FillDense(given, request));
  return FillSparse(given, request);
}

Status TensorMap::Take(const InputTensor& tensor, Request* request, Given* given) const {
  ASSIGN_OR_RETURN(const size_t found, Find(tensor.name));
  const Slot& slot = slots_[found];
  if (given->Has(found)) {
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
  const std::string_view bytes = WholeOf(tensor, request);
  if (bytes.size() != count * BytesOf(slot.datatype)) {
    return InvalidArgument(Tensor(tensor.name), "expected ", count * BytesOf(slot.datatype),
                           " bytes for ", slot.datatype, " ", Text(tensor.shape), ", got ",
                           bytes.size());
  }
  given->Set(found, bytes, count);
  return {};
}

Result<size_t> TensorMap::Find(std::string_view name) const {
  if (const auto found = slot_of_.find(name); found != slot_of_.end()) return found->second;
  for (const std::string_view suffix : {kValuesSuffix, kLengthsSuffix, kWeightsSuffix}) {
    const std::string_view feature = WithoutSuffix(name, suffix);
    if (!feature.empty()) return FindSparse(schema_, names_, feature);
  }
  return UnknownTensor(schema_, name);
}

// Values without lengths would count as no example, which is not what is wrong.
Status TensorMap::CheckLengths(const Given& given) const {
  const auto check = [&](size_t values, size_t lengths) -> Status {
    if (given.Has(lengths) || !given.Has(values) || given.Count(values) == 0) return {};
    return InvalidArgument(Tensor(slots_[lengths].name), "missing beside '", slots_[values].name,
                           "'");
  };
  RETURN_IF_ERROR(check(SlotOf(kAllValues), SlotOf(kAllLengths)));
  for (size_t i = 0; i < schema_.sparse.size(); ++i) {
    RETURN_IF_ERROR(check(SlotOf(i, kOwnValues), SlotOf(i, kOwnLengths)));
  }
  return {};
}

int64_t TensorMap::CountExamples(const Given& given) const {
  if (const size_t slot = SlotOf(kAllExampleDense); given.Has(slot) && slots_[slot].columns > 0) {
    return static_cast<int64_t>(given.Count(slot)) / slots_[slot].columns;
  }
  for (size_t i = 0; i < schema_.dense.size(); ++i) {
    if (schema_.dense[i].scope == Scope::kRequest || !given.Has(i)) continue;
    return static_cast<int64_t>(given.Count(i));
  }
  uint64_t of_request = 0;
  for (size_t i = 0; i < schema_.sparse.size(); ++i) {
    of_request += schema_.sparse[i].scope == Scope::kRequest ? 1 : 0;
    const size_t slot = SlotOf(i, kOwnLengths);
    if (schema_.sparse[i].scope == Scope::kRequest || !given.Has(slot)) continue;
    return static_cast<int64_t>(given.Count(slot));
  }
  const uint64_t lists = given.Has(SlotOf(kAllLengths)) ? given.Count(SlotOf(kAllLengths)) : 0;
  const uint64_t of_examples = schema_.sparse.size() - of_request;
  return of_examples == 0 || lists < of_request
             ? 0
             : static_cast<int64_t>((lists - of_request) / of_examples);
}

Status TensorMap::FillDense(const Given& given, Request* request) const {
  request->dense.assign(schema_.dense.size(), {});
  const bool all_of[] = {given.Has(SlotOf(kAllExampleDense)), given.Has(SlotOf(kAllRequestDense))};
  for (size_t i = 0; i < schema_.dense.size(); ++i) {
    const DenseInput& input = schema_.dense[i];
    if (!given.Has(i)) continue;
    if (all_of[input.scope == Scope::kRequest ? 1 : 0]) return GivenTwice(input.name);
    request->dense[i].values = given.View<float>(i);
  }
  PackedArrays packed;
  packed.example_dense = given.View<float>(SlotOf(kAllExampleDense));
  packed.request_dense = given.View<float>(SlotOf(kAllRequestDense));
  Status status;
  if (all_of[0]) status = SplitDense(schema_, Scope::kExample, packed, kPackedNames, request);
  if (status.ok() && all_of[1])
    status = SplitDense(schema_, Scope::kRequest, packed, kPackedNames, request);
  return status;
}

Status TensorMap::FillSparse(const Given& given, Request* request) const {
  request->sparse.assign(schema_.sparse.size(), {});
  const bool all = given.Has(SlotOf(kAllLengths)) || given.Has(SlotOf(kAllValues)) ||
                   given.Has(SlotOf(kAllWeights));
  for (size_t i = 0; i < schema_.sparse.size(); ++i) {
    const size_t slot = SlotOf(i, kOwnValues);
    if (!given.Has(slot) && !given.Has(SlotOf(i, kOwnLengths)) &&
        !given.Has(SlotOf(i, kOwnWeights)))
      continue;
    if (all) return GivenTwice(schema_.sparse[i].name);
    SparseView& view = request->sparse[i];
    view.lengths = given.View<int32_t>(SlotOf(i, kOwnLengths));
    view.values = given.View<int64_t>(slot);
    view.weights = given.View<float>(SlotOf(i, kOwnWeights));
  }
  if (!all) return {};
  PackedArrays packed;
  packed.lengths = given.View<int32_t>(SlotOf(kAllLengths));
  packed.values = given.View<int64_t>(SlotOf(kAllValues));
  packed.weights = given.View<float>(SlotOf(kAllWeights));
  return SplitSparse(schema_, packed, kPackedNames, request);
}

BatchSize TensorMap::SizeOf(std::span<const InputTensor> inputs,
                            std::optional<int64_t> stated) const {
  BatchSize size = {.requests = 1};
  Given given(slots_.size());
  for (const InputTensor& tensor : inputs) {
    const auto found = slot_of_.find(tensor.name);
    const Result<uint64_t> count = CountValues(tensor);
    if (found == slot_of_.end() || !count.ok()) continue;
    given.Set(found->second, {}, *count);
    if (slots_[found->second].datatype == kInt64) size.ids += *count;
  }
  size.examples =
      static_cast<uint64_t>(std::max<int64_t>(stated.value_or(CountExamples(given)), 0));
  return size;
}

bool TensorMap::IsBatchOfOne(std::span<const InputTensor> inputs) const {
  return !inputs.empty() && std::ranges::all_of(inputs, [this](const InputTensor& tensor) {
    const auto found = slot_of_.find(tensor.name);
    if (found == slot_of_.end()) return false;
    const size_t own = slots_[found->second].columns > 0 ? 2 : 1;
    return tensor.shape.size() == own + 1 && tensor.shape[0] == 1;
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
