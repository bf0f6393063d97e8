#include "lookup/fbgemm_call.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <stdexcept>
#include <utility>

namespace embershard {
namespace {

// FBGEMM's numbers (SparseType, EmbeddingLocation, PoolingMode).
constexpr int64_t kFp32 = 0;
constexpr int32_t kHost = 3;
constexpr int64_t kSum = 0;

int64_t SparseType(WeightType weights) {
  switch (weights) {
    case WeightType::kFp16:
      return 1;
    case WeightType::kInt8:
      return 2;
    case WeightType::kInt4:
      return 3;
  }
  throw std::logic_error("unknown weight type");
}

c10::OperatorHandle FindOperator() {
  constexpr const char* kName = "fbgemm::int_nbit_split_embedding_codegen_lookup_function";
  const auto found = c10::Dispatcher::singleton().findSchema({kName, ""});
  if (!found) throw std::runtime_error(std::string(kName) + " is not loaded");
  return *found;
}

// A view without a copy. The operator only reads.
template <class T>
at::Tensor View(const T* values, size_t size) {
  return at::from_blob(const_cast<T*>(values), {static_cast<int64_t>(size)},
                       at::TensorOptions(c10::CppTypeToScalarType<T>::value));
}

int64_t LargestDim(const std::vector<FbgemmLookupPart>& parts, WeightType weights) {
  int64_t largest = 0;
  for (const FbgemmLookupPart& part : parts) {
    if (part.weights == weights) largest = std::max(largest, part.dim);
  }
  return largest;
}

// The arguments that are the same for every batch, by the names of the operator's schema.
std::map<std::string, c10::IValue> FixedArguments(const TableStore& tables,
                                                  const std::vector<FbgemmLookupPart>& parts) {
  std::vector<int64_t> offsets;
  std::vector<int64_t> types;
  std::vector<int64_t> dim_offsets = {0};
  for (const FbgemmLookupPart& part : parts) {
    offsets.push_back(static_cast<int64_t>(part.offset_bytes));
    types.push_back(SparseType(part.weights));
    dim_offsets.push_back(dim_offsets.back() + part.dim);
  }
  const std::vector<int32_t> placements(parts.size(), kHost);
  const auto* base = reinterpret_cast<const uint8_t*>(tables.base());
  return {
      {"dev_weights", View(base, tables.size_bytes())},
      {"uvm_weights", View<uint8_t>(nullptr, 0)},
      {"weights_placements", at::tensor(placements, at::kInt)},
      {"weights_offsets", at::tensor(offsets, at::kLong)},
      {"weights_tys", at::tensor(types, at::kByte)},
      {"D_offsets", at::tensor(dim_offsets, at::kInt)},
      {"total_D", dim_offsets.back()},
      {"max_int2_D", 0},
      {"max_int4_D", LargestDim(parts, WeightType::kInt4)},
      {"max_int8_D", LargestDim(parts, WeightType::kInt8)},
      {"max_float16_D", LargestDim(parts, WeightType::kFp16)},
      {"max_float32_D", 0},
      {"pooling_mode", kSum},
      {"output_dtype", kFp32},
      {"row_alignment", 1},
  };
}

struct RowsSeen {
  bool zero_rows = false;
  bool out_of_range = false;  // Neither kZeroRow nor one of the table.
};

// Sign bits gathered without a branch: a loop that compilers turn into vectors.
RowsSeen Look(const int64_t* begin, const int64_t* end, int64_t table_rows) {
  const auto last = static_cast<uint64_t>(table_rows - 1);
  uint64_t below_zero = 0;
  uint64_t out_of_range = 0;
  for (const int64_t* row = begin; row != end; ++row) {
    const auto bits = static_cast<uint64_t>(*row);
    below_zero |= bits;
    out_of_range |= (bits + 1) | (last - bits);
  }
  constexpr uint64_t kSign = uint64_t{1} << 63;
  return {(below_zero & kSign) != 0, (out_of_range & kSign) != 0};
}

Status OutOfRange(const FbgemmLookupPart& part, const int64_t* begin, const int64_t* end) {
  const int64_t* row = std::find_if(
      begin, end, [&part](int64_t each) { return each < kZeroRow || each >= part.table_rows; });
  return Internal("table '" + part.table + "': row " + std::to_string(*row) + " of feature '" +
                  part.input + "' is not in -1.." + std::to_string(part.table_rows - 1));
}

}  // namespace

FbgemmCall::FbgemmCall(const FbgemmCallKind& kind, const TableStore& tables,
                       std::vector<FbgemmLookupPart> parts)
    : kind_(kind), parts_(std::move(parts)), operator_(FindOperator()) {
  for (const FbgemmLookupPart& part : parts_) total_dim_ += static_cast<size_t>(part.dim);

  const auto fixed = FixedArguments(tables, parts_);
  const std::map<std::string, size_t*> varying = {{"indices", &rows_position_},
                                                  {"offsets", &offsets_position_},
                                                  {"indice_weights", &weights_position_}};
  for (const c10::Argument& argument : operator_.schema().arguments()) {
    if (const auto place = varying.find(argument.name()); place != varying.end()) {
      *place->second = arguments_.size();
      arguments_.emplace_back();
    } else if (const auto value = fixed.find(argument.name()); value != fixed.end()) {
      arguments_.push_back(value->second);
    } else if (argument.default_value()) {
      arguments_.push_back(*argument.default_value());
    } else {
      throw std::runtime_error("FBGEMM's lookup has an argument '" + argument.name() +
                               "' that this version of embershard does not know");
    }
  }
}

Status FbgemmCall::Run(std::span<const JaggedRows> sparse, PooledMatrix request,
                       PooledMatrix example) {
  const PooledMatrix out = kind_.scope == Scope::kRequest ? request : example;
  if (out.bags == 0) return {};
  if (Status status = Merge(sparse, out.bags); !status.ok()) return status;
  stack_ = arguments_;
  stack_[rows_position_] = View(rows_.data(), rows_.size());
  stack_[offsets_position_] = View(offsets_.data(), offsets_.size());
  if (kind_.weighted) stack_[weights_position_] = View(weights_.data(), weights_.size());
  operator_.callBoxed(stack_);
  const at::Tensor sums = std::move(stack_[0]).toTensor();
  stack_.clear();
  Scatter(sums.const_data_ptr<float>(), sparse, out);
  return {};
}

Status FbgemmCall::Merge(std::span<const JaggedRows> sparse, size_t bags) {
  rows_.clear();
  weights_.clear();
  offsets_.assign(1, 0);
  for (const FbgemmLookupPart& part : parts_) {
    Status status = MergePart(part, sparse[part.sparse_input], bags);
    if (!status.ok()) return status;
  }
  return {};
}

Status FbgemmCall::MergePart(const FbgemmLookupPart& part, const JaggedRows& lists, size_t bags) {
  const int64_t begin = lists.offsets[0];
  const int64_t end = lists.offsets[bags];
  // The kernel does not check rows. Ids were, when they became rows: a row that is out of
  // range here is our bug, but must not read foreign memory.
  const RowsSeen seen = Look(lists.rows + begin, lists.rows + end, part.table_rows);
  if (seen.out_of_range) return OutOfRange(part, lists.rows + begin, lists.rows + end);

  if (!seen.zero_rows) {
    const int64_t shift = static_cast<int64_t>(rows_.size()) - begin;
    rows_.insert(rows_.end(), lists.rows + begin, lists.rows + end);
    if (kind_.weighted) weights_.insert(weights_.end(), lists.weights + begin, lists.weights + end);
    for (size_t bag = 1; bag <= bags; ++bag) offsets_.push_back(lists.offsets[bag] + shift);
    return {};
  }
  // Every row is written and only a real one advances: no branch to mispredict.
  size_t size = rows_.size();
  rows_.resize(size + static_cast<size_t>(end - begin));
  weights_.resize(kind_.weighted ? rows_.size() : 0);
  int64_t* const rows = rows_.data();
  float* const weights = kind_.weighted ? weights_.data() : nullptr;
  for (size_t bag = 0; bag < bags; ++bag) {
    const int64_t bag_end = lists.offsets[bag + 1];
    for (int64_t i = lists.offsets[bag]; i < bag_end; ++i) {
      const int64_t row = lists.rows[i];
      rows[size] = row;
      if (weights != nullptr) weights[size] = lists.weights[i];
      size += row != kZeroRow;
    }
    offsets_.push_back(static_cast<int64_t>(size));
  }
  rows_.resize(size);
  weights_.resize(kind_.weighted ? size : 0);
  return {};
}

void FbgemmCall::Scatter(const float* sums, std::span<const JaggedRows> sparse,
                         PooledMatrix out) const {
  for (size_t bag = 0; bag < out.bags; ++bag) {
    for (const FbgemmLookupPart& part : parts_) {
      const auto dim = static_cast<size_t>(part.dim);
      float* const to = out.values + bag * out.columns + part.column;
      const int64_t* offsets = sparse[part.sparse_input].offsets;
      const int64_t length = offsets[bag + 1] - offsets[bag];
      if (part.pooling == Pooling::kMean && length > 1) {
        const float factor = 1.0F / static_cast<float>(length);
        for (size_t d = 0; d < dim; ++d) to[d] = sums[d] * factor;
      } else {
        std::memcpy(to, sums, dim * sizeof(float));
      }
      sums += dim;
    }
  }
}

}  // namespace embershard
