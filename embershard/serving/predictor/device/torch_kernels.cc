#include "device/torch_kernels.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dense/tensors.h"

namespace embershard {
namespace {

constexpr const char* kLookupOperator = "fbgemm::int_nbit_split_embedding_codegen_lookup_function";

int64_t PoolingOf(LookupMode mode) {
  switch (mode) {
    case LookupMode::kSum:
      return 0;
    case LookupMode::kMean:
      return 1;
    case LookupMode::kUnpooled:
      return 2;
  }
  return 0;
}

uint8_t SparseTypeOf(WeightType weights) {
  switch (weights) {
    case WeightType::kFp32:
      return 0;
    case WeightType::kFp16:
      return 1;
    case WeightType::kInt8:
      return 2;
    case WeightType::kInt4:
      return 3;
  }
  return 0;
}

constexpr int32_t kPlacedOnDevice = 0;
constexpr int32_t kPlacedOnHost = 3;
constexpr int64_t kFloat32Output = 0;
constexpr double kHalfMax = 65504;

template <class T>
at::Tensor View(const T* values, at::IntArrayRef sizes, at::ScalarType type, c10::Device device) {
  return at::for_blob(const_cast<T*>(values), sizes)
      .options(at::TensorOptions(type).device(device))
      .target_device(device)
      .make_tensor();
}

class TorchKernels final : public DeviceKernels {
 public:
  TorchKernels(c10::Device device, std::unique_ptr<DeviceProgram> program)
      : device_(device),
        program_(std::move(program)),
        lookup_(c10::Dispatcher::singleton().findSchemaOrThrow(kLookupOperator, "")) {}

  void Prepare(size_t position, const DeviceLayout& layout, const std::byte* weights,
               size_t weight_bytes) {
    const at::Tensor rows = View(weights, {static_cast<int64_t>(weight_bytes)}, at::kByte, device_);
    for (const HomeLayout& home : layout.homes) {
      for (const LookupCall& call : home.calls) {
        if (call.device == position) {
          arguments_.push_back(ArgumentsOf(call, layout.shards[position], rows));
        }
      }
    }
  }

  void Lookup(const LookupCall& call, const CallLists& lists, std::span<const ColumnCopy> copies,
              std::span<const DeviceMatrix> targets) override {
    if (call.mode == LookupMode::kUnpooled && lists.ids == 0) return;
    const auto ids = static_cast<int64_t>(lists.ids);
    const auto bags = static_cast<int64_t>(call.tables.size() * lists.bags);
    at::Stack stack = arguments_[call.number].fixed;
    stack[arguments_[call.number].rows_at] = View(lists.rows, {ids}, at::kInt, device_);
    stack[arguments_[call.number].offsets_at] = View(lists.offsets, {bags + 1}, at::kInt, device_);
    if (lists.weights != nullptr) {
      stack[arguments_[call.number].weights_at] = View(lists.weights, {ids}, at::kFloat, device_);
    }
    lookup_.callBoxed(&stack);
    const at::Tensor result = stack.at(0).toTensor();
    for (const ColumnCopy& copy : copies) Copy(result, copy, ViewOf(targets[copy.target]));
  }

  void Place(const DeviceMatrix& from, const ColumnCopy& copy, const DeviceMatrix& to) override {
    if (from.rows > 0) Copy(ViewOf(from), copy, ViewOf(to));
  }

  void RunProgram(const DenseProgramInputs& inputs, float* outputs) override {
    program_->Run(inputs, outputs);
  }

 private:
  struct CallArguments {
    at::Stack fixed;
    size_t rows_at = 0;
    size_t offsets_at = 0;
    size_t weights_at = 0;
  };

  at::Tensor ViewOf(const DeviceMatrix& matrix) const {
    return View(matrix.values,
                {static_cast<int64_t>(matrix.rows), static_cast<int64_t>(matrix.columns)},
                matrix.half ? at::kHalf : at::kFloat, device_);
  }

  static void Copy(const at::Tensor& from, const ColumnCopy& copy, const at::Tensor& to) {
    const auto columns = static_cast<int64_t>(copy.columns);
    const at::Tensor source = from.narrow(1, static_cast<int64_t>(copy.from), columns);
    const at::Tensor target = to.narrow(1, static_cast<int64_t>(copy.to), columns);
    if (copy.add) {
      target.add_(source);
    } else if (target.scalar_type() == at::kHalf) {
      target.copy_(source.clamp(-kHalfMax, kHalfMax));  // Without infinities.
    } else {
      target.copy_(source);
    }
  }

  // Sets arguments by name, because later versions of FBGEMM add arguments with defaults.
  CallArguments ArgumentsOf(const LookupCall& call, const std::vector<PackedShard>& shards,
                            const at::Tensor& rows) const {
    std::vector<int32_t> placements;
    std::vector<int64_t> offsets;
    std::vector<uint8_t> types;
    std::vector<int32_t> columns = {0};
    std::vector<int64_t> columns_max(4);  // Indexed by SparseTypeOf().
    for (const CallTable& table : call.tables) {
      const PackedShard& shard = shards[table.shard];
      placements.push_back(device_.is_cpu() ? kPlacedOnHost : kPlacedOnDevice);
      offsets.push_back(static_cast<int64_t>(shard.offset));
      types.push_back(SparseTypeOf(shard.weights));
      columns.push_back(static_cast<int32_t>(table.result_column + table.result_columns));
      int64_t& column_max = columns_max[types.back()];
      column_max = std::max(column_max, static_cast<int64_t>(table.result_columns));
    }
    const auto on_device = [this](const auto& values, at::ScalarType type) {
      return at::tensor(values, at::TensorOptions(type)).to(device_);
    };
    const std::vector<std::pair<std::string_view, c10::IValue>> named = {
        {"dev_weights", rows},
        {"uvm_weights", at::tensor(std::vector<uint8_t>(), at::kByte).to(device_)},
        {"weights_placements", on_device(placements, at::kInt)},
        {"weights_offsets", on_device(offsets, at::kLong)},
        {"weights_tys", on_device(types, at::kByte)},
        {"D_offsets", on_device(columns, at::kInt)},
        {"total_D", static_cast<int64_t>(call.columns)},
        {"max_int2_D", int64_t{0}},
        {"max_float32_D", columns_max[0]},
        {"max_float16_D", columns_max[1]},
        {"max_int8_D", columns_max[2]},
        {"max_int4_D", columns_max[3]},
        {"pooling_mode", PoolingOf(call.mode)},
        {"output_dtype", kFloat32Output},
        {"row_alignment", static_cast<int64_t>(kDeviceRowAlignment)}};
    CallArguments result;
    for (const c10::Argument& argument : lookup_.schema().arguments()) {
      const auto value =
          std::ranges::find(named, argument.name(), [](const auto& pair) { return pair.first; });
      const size_t position = result.fixed.size();
      if (argument.name() == "indices") result.rows_at = position;
      if (argument.name() == "offsets") result.offsets_at = position;
      if (argument.name() == "indice_weights") result.weights_at = position;
      result.fixed.push_back(
          value != named.end() ? value->second : argument.default_value().value_or(c10::IValue()));
    }
    return result;
  }

  const c10::Device device_;
  const std::unique_ptr<DeviceProgram> program_;
  const c10::OperatorHandle lookup_;
  std::vector<CallArguments> arguments_;  // Indexed by LookupCall::number.
};

}  // namespace

std::unique_ptr<DeviceKernels> MakeTorchKernels(c10::Device device, size_t position,
                                                const DeviceLayout& layout,
                                                const std::byte* weights, size_t weight_bytes,
                                                std::unique_ptr<DeviceProgram> program) {
  auto kernels = std::make_unique<TorchKernels>(device, std::move(program));
  kernels->Prepare(position, layout, weights, weight_bytes);
  return kernels;
}

}  // namespace embershard
