#include "dense/torchscript_layer.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <bit>
#include <mutex>
#include <set>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/core_count.h"
#include "base/divide_up.h"
#include "dense/vector_products.h"

namespace embershard {
namespace {

// Sizes of pieces; see FirstPiece().
constexpr int64_t kLargestPiece = 512;
constexpr int64_t kWholePiece = 256;  // float32 batches of at most this size are one piece.
constexpr int64_t kFewRows = 64;      // float32 sizes are kNarrowStep apart up to this size,
constexpr int64_t kNarrowStep = 8;    // and twice that above it.
constexpr int64_t kWideStep = 32;     // bfloat16 sizes are this far apart.

// Minimum work of a thread with vector_products.h: rows, or multiply-adds if threads share a
// layer's outputs.
constexpr int64_t kThreadRows = 48;
constexpr int64_t kThreadMultiplyAdds = 1 << 20;

// Rows that pass through all layers at a time, so that results stay in the second-level cache.
constexpr int64_t kBlockRows = 256;

using Reorder = at::Tensor(const at::Tensor& weight, std::optional<int64_t> batch_size);
using Pointwise = at::Tensor(const at::Tensor& x, const at::Tensor& weight,
                             const std::optional<at::Tensor>& bias, std::string_view attr,
                             c10::List<std::optional<at::Scalar>> scalars,
                             std::optional<std::string_view> algorithm);

template <class Signature>
std::optional<c10::TypedOperatorHandle<Signature>> FindOperator(const char* name) {
  const auto handle = c10::Dispatcher::singleton().findSchema({name, ""});
  if (!handle || !handle->hasKernelForDispatchKey(c10::DispatchKey::CPU)) return std::nullopt;
  return handle->typed<Signature>();
}

bool HasOneDnn() {
  return at::hasMKLDNN() && at::globalContext().userEnabledMkldnn() &&
         FindOperator<Reorder>("mkldnn::_reorder_linear_weight") &&
         FindOperator<Pointwise>("mkldnn::_linear_pointwise");
}

// x [computed, columns] has the layer's type.
at::Tensor RunPiece(const PackedLayer& layer, const at::Tensor& x) {
  static const auto pointwise = *FindOperator<Pointwise>("mkldnn::_linear_pointwise");
  return pointwise.call(x, layer.packed, layer.bias, "none", c10::List<std::optional<at::Scalar>>(),
                        std::nullopt);
}

// Returns the input of RunPiece() for x [rows, inputs] of any float type: a view of x if there is
// enough memory after its rows, else a copy padded with zeros.
at::Tensor Padded(const PackedLayer& layer, const at::Tensor& x, int64_t computed) {
  const int64_t rows = x.size(0);
  const int64_t inputs = x.size(1);
  if (inputs == layer.columns && x.scalar_type() == layer.type && x.is_contiguous()) {
    if (rows == computed) return x;
    const int64_t end = x.storage_offset() + computed * inputs;
    if (static_cast<size_t>(end) * x.element_size() <= x.storage().nbytes()) {
      return x.as_strided({computed, inputs}, {inputs, 1});
    }
  }
  at::Tensor padded = at::empty({computed, layer.columns}, layer.type);
  padded.narrow(0, 0, rows).narrow(1, 0, inputs).copy_(x);
  if (inputs < layer.columns) {
    padded.narrow(0, 0, rows).narrow(1, inputs, layer.columns - inputs).zero_();
  }
  if (rows < computed) padded.narrow(0, rows, computed - rows).zero_();
  return padded;
}

size_t Size(int64_t size) { return static_cast<size_t>(size); }

// A panel has kPackedOutputs outputs.
int64_t Panels(const PackedLayer& layer) {
  return static_cast<int64_t>(DivideUp(Size(layer.weight.size(0)), kPackedOutputs));
}

// Writes the outputs of panels `first` .. `last` - 1 to y [rows, outputs].
void RunPanels(const PackedLayer& layer, const float* x, int64_t rows, float* y, int64_t first,
               int64_t last) {
  constexpr auto kOutputs = static_cast<int64_t>(kPackedOutputs);
  const int64_t inputs = layer.weight.size(1);
  const int64_t outputs = layer.weight.size(0);
  const int64_t begin = first * kOutputs;
  BestVectorProducts()->linear(
      {.vectors = x,
       .count = Size(rows),
       .dim = Size(inputs),
       .packed = layer.packed.const_data_ptr<float>() + begin * inputs,
       .bias = layer.bias ? layer.bias->const_data_ptr<float>() + begin : nullptr,
       .outputs = Size(std::min(last * kOutputs, outputs) - begin),
       .relu = layer.relu,
       .products = y + begin,
       .stride = Size(outputs)});
}

// Threads share the outputs of each layer, unless they already share the rows.
void RunRows(const PackedLayer& first, const float* x, int64_t rows, float* y) {
  thread_local std::vector<float> buffers[2];
  size_t position = 0;
  for (const PackedLayer* layer = &first; layer != nullptr; layer = layer->next.get()) {
    const int64_t outputs = layer->weight.size(0);
    float* to = y;
    if (layer->next != nullptr) {
      std::vector<float>& buffer = buffers[position++ % 2];
      if (buffer.size() < Size(rows * outputs)) buffer.resize(Size(rows * outputs));
      to = buffer.data();
    }
    const int64_t multiply_adds = rows * layer->columns * static_cast<int64_t>(kPackedOutputs);
    const int64_t grain = kThreadMultiplyAdds / multiply_adds + 1;
    at::parallel_for(0, Panels(*layer), grain, [&](int64_t begin, int64_t end) {
      RunPanels(*layer, x, rows, to, begin, end);
    });
    x = to;
  }
}

// Runs a layer with the kernels of vector_products.h. input [rows, inputs] has any float type.
at::Tensor RunOwn(const PackedLayer& layer, const at::Tensor& input) {
  const at::Tensor x = input.to(at::kFloat).contiguous();
  const int64_t rows = x.size(0);
  const int64_t outputs = layer.last().weight.size(0);
  at::Tensor y = at::empty({rows, outputs}, at::kFloat);
  const float* const from = x.const_data_ptr<float>();
  float* const to = y.mutable_data_ptr<float>();
  // With fewer rows, all threads share the outputs of each layer instead of the rows.
  const int64_t shared = kThreadRows * at::get_num_threads();
  const int64_t grain = rows < shared ? shared : kThreadRows;
  at::parallel_for(0, rows, grain, [&](int64_t begin, int64_t end) {
    const size_t blocks = DivideUp(Size(end - begin), kBlockRows);
    const size_t tiles = DivideUp(DivideUp(Size(end - begin), blocks), kTileRows);
    const auto size = static_cast<int64_t>(tiles * kTileRows);
    for (int64_t row = begin; row < end; row += size) {
      RunRows(layer, from + row * x.size(1), std::min(size, end - row), to + row * outputs);
    }
  });
  return y;
}

// x [rows, inputs] has any float type.
at::Tensor RunOneDnn(const PackedLayer& layer, const at::Tensor& x) {
  const int64_t rows = x.size(0);
  if (rows == 1 && !layer.bfloat16()) {  // torch's product of matrix and vector is faster.
    return at::linear(x.to(layer.type), layer.weight, layer.bias);
  }
  const LinearPiece whole = rows > 0 ? FirstPiece(rows, layer.bfloat16()) : LinearPiece{};
  if (rows > 0 && whole.rows == rows) {
    return RunPiece(layer, Padded(layer, x, whole.computed)).narrow(0, 0, rows);
  }
  at::Tensor y = at::empty({rows, layer.weight.size(0)}, layer.type);
  for (int64_t first = 0; first < rows;) {
    const LinearPiece piece = FirstPiece(rows - first, layer.bfloat16());
    const at::Tensor taken = Padded(layer, x.narrow(0, first, piece.rows), piece.computed);
    y.narrow(0, first, piece.rows).copy_(RunPiece(layer, taken).narrow(0, 0, piece.rows));
    first += piece.rows;
  }
  return y;
}

// oneDNN has a kernel for each such number.
int64_t ComputedRows(int64_t rows, bool bfloat16) {
  int64_t step = kWideStep;
  if (!bfloat16) step = rows <= kFewRows ? kNarrowStep : 2 * kNarrowStep;
  if (!bfloat16 && rows > kWholePiece) return kLargestPiece;
  if (rows <= step) return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(rows)));
  return DivideUp(rows, step) * step;
}

void RunAllSizes(const PackedLayer& layer) {
  for (int64_t rows = 0; rows < kLargestPiece;) {
    rows = ComputedRows(rows + 1, layer.bfloat16());
    RunPiece(layer, at::zeros({rows, layer.columns}, layer.type));
  }
}

// The shapes of layers whose kernels oneDNN has compiled. It keeps them for the process, so later
// versions of a model use them, too. Thread-safe.
class CompiledLayers {
 public:
  void Compile(const PackedLayer& layer) {
    const Shape shape = {layer.bfloat16(), layer.weight.size(0), layer.columns,
                         layer.bias.has_value(), at::get_num_threads()};
    // Held while compiling, so that other threads wait for the kernels.
    const std::lock_guard lock(mutex_);
    if (shapes_.contains(shape)) return;
    RunAllSizes(layer);
    if (shapes_.size() >= kMost) shapes_.clear();
    shapes_.insert(shape);
  }

 private:
  // With two dozen kernels each, these are half of the 1024 kernels that oneDNN keeps by default.
  // The set is cleared at this size, because oneDNN may have released some of its kernels.
  static constexpr size_t kMost = 20;

  // Is bfloat16, outputs, columns, has a bias, threads.
  using Shape = std::tuple<bool, int64_t, int64_t, bool, int>;

  std::mutex mutex_;
  std::set<Shape> shapes_;  // Guarded by mutex_.
};

// Lives as long as oneDNN's cache of kernels, which belongs to the process.
CompiledLayers& Compiled() {
  static CompiledLayers compiled;
  return compiled;
}

}  // namespace

bool UsesOwnKernels() {
  static const bool is_wide = UsableFlags().contains("avx512f");
  return BestVectorProducts() != nullptr && !(is_wide && HasOneDnn());
}

bool CanPack(at::ScalarType type) {
  if (type == at::kFloat) return UsesOwnKernels() || HasOneDnn();
  static const bool multiplies = UsableFlags().contains("avx512_bf16");
  return multiplies && HasOneDnn();
}

void Pack(PackedLayer* layer) {
  layer->own = !layer->bfloat16() && UsesOwnKernels();
  if (layer->own) {
    const int64_t inputs = layer->weight.size(1);
    layer->packed = at::empty({Panels(*layer) * int64_t{kPackedOutputs}, inputs}, at::kFloat);
    // Freeing memory of this size once makes glibc keep such memory for later batches. Otherwise
    // the system clears its pages for each batch.
    at::empty({kLargestPiece, std::max(inputs, layer->weight.size(0))}, at::kFloat);
    return BestVectorProducts()->pack(layer->weight.const_data_ptr<float>(),
                                      Size(layer->weight.size(0)), Size(inputs),
                                      layer->packed.mutable_data_ptr<float>());
  }
  static const auto reorder = *FindOperator<Reorder>("mkldnn::_reorder_linear_weight");
  const int64_t zeros = layer->columns - layer->weight.size(1);
  layer->packed = reorder.call(at::constant_pad_nd(layer->weight, {0, zeros}), std::nullopt);
  Compiled().Compile(*layer);
}

at::Tensor RunLayers(const PackedLayer& layer, const at::Tensor& x) {
  const int64_t inputs = layer.weight.size(1);
  TORCH_CHECK(x.dim() > 0 && x.size(-1) == inputs && x.is_floating_point(),
              "linear: expected rows of ", inputs, " floats, got ", x.scalar_type(), " of ",
              x.sizes());
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = layer.last().weight.size(0);
  const at::Tensor rows = x.reshape({x.numel() / inputs, inputs});
  if (layer.own) return RunOwn(layer, rows).view(shape);
  at::Tensor y = RunOneDnn(layer, rows);
  if (layer.relu) at::relu_(y);  // oneDNN's own relu turns NaN into zero.
  return y.view(shape);
}

LinearPiece FirstPiece(int64_t rows, bool bfloat16) {
  if (rows >= kLargestPiece) return {kLargestPiece, kLargestPiece};
  if (rows > kWholePiece && !bfloat16) return {kWholePiece, kWholePiece};
  return {rows, ComputedRows(rows, bfloat16)};
}

}  // namespace embershard
