#include "dense/torchscript_linear.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <bit>
#include <mutex>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "base/divide_up.h"

namespace embershard {
namespace {

using torch::jit::Node;
using torch::jit::Value;

constexpr int64_t kLargestPiece = 512;
constexpr int64_t kWholePiece = 256;  // Up to so many rows of float32 are one piece.
constexpr int64_t kFewRows = 64;      // Up to so many rows of float32 sizes are kNarrowStep apart,
constexpr int64_t kNarrowStep = 8;    // above twice that.
constexpr int64_t kWideStep = 32;     // Those of bfloat16.
constexpr int64_t kNarrowColumns =
    32;  // Inputs of bfloat16 come in so many, or are copied at each call.
constexpr int64_t kFewestWeights = 16384;

const auto kLinearKind = c10::Symbol::fromQualString("embershard::linear");

using Pack = at::Tensor(const at::Tensor& weight, std::optional<int64_t> batch_size);
using Pointwise = at::Tensor(const at::Tensor& x, const at::Tensor& weight,
                             const std::optional<at::Tensor>& bias, std::string_view attr,
                             c10::List<std::optional<at::Scalar>> scalars,
                             std::optional<std::string_view> algorithm);

// Of torch, or null.
template <class Signature>
std::optional<c10::TypedOperatorHandle<Signature>> Find(const char* name) {
  const auto found = c10::Dispatcher::singleton().findSchema({name, ""});
  if (!found || !found->hasKernelForDispatchKey(c10::DispatchKey::CPU)) return std::nullopt;
  return found->typed<Signature>();
}

struct Layer final : torch::CustomClassHolder {
  at::ScalarType type = at::kFloat;  // Of inputs, weights and outputs; sums are float32.
  at::Tensor weight;                 // [outputs, inputs]
  std::optional<at::Tensor> bias;    // [outputs]
  at::Tensor packed;                 // [outputs, columns]
  int64_t columns = 0;               // Inputs, and zeros behind them.
  bool relu = false;

  bool bfloat16() const { return type == at::kBFloat16; }
};

// x [computed, columns], of the layer's type.
at::Tensor RunPiece(const Layer& layer, const at::Tensor& x) {
  static const auto pointwise = *Find<Pointwise>("mkldnn::_linear_pointwise");
  return pointwise.call(x, layer.packed, layer.bias, "none", c10::List<std::optional<at::Scalar>>(),
                        std::nullopt);
}

// What RunPiece takes of x [rows, inputs], of any float type: x itself, with whatever lies behind
// its rows in the same memory, or a copy with zeros behind its rows and columns.
at::Tensor Padded(const Layer& layer, const at::Tensor& x, int64_t computed) {
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

// x [rows, inputs], of any float type; the result is of the layer's.
at::Tensor RunRows(const Layer& layer, const at::Tensor& x) {
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

at::Tensor Run(const Layer& layer, const at::Tensor& given) {
  const int64_t inputs = layer.weight.size(1);
  TORCH_CHECK(given.dim() > 0 && given.size(-1) == inputs && given.is_floating_point(),
              "linear: expected rows of ", inputs, " floats, got ", given.scalar_type(), " of ",
              given.sizes());
  std::vector<int64_t> shape = given.sizes().vec();
  shape.back() = layer.weight.size(0);
  at::Tensor y = RunRows(layer, given.reshape({given.numel() / inputs, inputs}));
  if (layer.relu) at::relu_(y);  // oneDNN's own makes zeros of NaN.
  return y.view(shape);
}

// How many rows oneDNN computes for so many of one piece. It has a kernel of its own for each such
// number.
int64_t ComputedRows(int64_t rows, bool bfloat16) {
  int64_t step = kWideStep;
  if (!bfloat16) step = rows <= kFewRows ? kNarrowStep : 2 * kNarrowStep;
  if (!bfloat16 && rows > kWholePiece) return kLargestPiece;
  if (rows <= step) return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(rows)));
  return DivideUp(rows, step) * step;
}

// Runs each size that any batch will need, so that oneDNN compiles their kernels.
void RunEachSize(const Layer& layer) {
  for (int64_t rows = 0; rows < kLargestPiece;) {
    rows = ComputedRows(rows + 1, layer.bfloat16());
    RunPiece(layer, at::zeros({rows, layer.columns}, layer.type));
  }
}

// The layers whose kernels oneDNN keeps for the process, and with it for further versions.
// Thread-safe.
class CompiledLayers {
 public:
  // Has a layer's kernels compiled, unless those of one of the same shape have been.
  void Compile(const Layer& layer) {
    const Shape shape = {layer.bfloat16(), layer.weight.size(0), layer.columns,
                         layer.bias.has_value(), at::get_num_threads()};
    const std::lock_guard lock(mutex_);  // Who needs the same ones waits for them.
    if (shapes_.contains(shape)) return;
    RunEachSize(layer);
    if (shapes_.size() >= kMost) shapes_.clear();
    shapes_.insert(shape);
  }

 private:
  // Two dozen kernels each, at most: half of the 1024 that oneDNN keeps unless it is told
  // otherwise. It may have let go of more than these.
  static constexpr size_t kMost = 20;

  // In bfloat16, outputs, columns, with a bias, threads.
  using Shape = std::tuple<bool, int64_t, int64_t, bool, int>;

  std::mutex mutex_;
  std::set<Shape> shapes_;  // Guarded by mutex_.
};

// As long as oneDNN's own, which is one for the process, too.
CompiledLayers& Compiled() {
  static CompiledLayers compiled;
  return compiled;
}

const auto kLayerClass = torch::class_<Layer>("embershard", "Layer");

const torch::jit::RegisterOperators kOperators({torch::jit::Operator(
    "embershard::linear(Tensor x, __torch__.torch.classes.embershard.Layer layer) -> Tensor",
    [](torch::jit::Stack& stack) {
      const auto layer = torch::jit::pop(stack).toCustomClass<Layer>();
      const at::Tensor x = torch::jit::pop(stack).toTensor();
      torch::jit::push(stack, Run(*layer, x));
    },
    c10::AliasAnalysisKind::FROM_SCHEMA)});

// Of a constant tensor of float32 on CPU.
std::optional<at::Tensor> ConstantFloats(const Value* value) {
  const auto found = torch::jit::toIValue(value);
  if (!found || !found->isTensor()) return std::nullopt;
  const at::Tensor& tensor = found->toTensor();
  if (!tensor.device().is_cpu() || tensor.scalar_type() != at::kFloat) return std::nullopt;
  return tensor.detach().contiguous();
}

Node* OnlyUser(const Value* value) {
  return value->uses().size() == 1 ? value->uses()[0].user : nullptr;
}

// The two casts float32(bfloat16(value)).
struct Rounding {
  Node* to_bfloat16 = nullptr;
  Node* to_float32 = nullptr;
};

std::optional<Rounding> RoundingBefore(Value* value) {
  Node* const wide = value->node();
  if (!IsCastTo(wide, at::kFloat) || !IsCastTo(wide->input(0)->node(), at::kBFloat16)) {
    return std::nullopt;
  }
  return Rounding{wide->input(0)->node(), wide};
}

std::optional<Rounding> RoundingBehind(const Value* value) {
  Node* const narrow = OnlyUser(value);
  if (narrow == nullptr || !IsCastTo(narrow, at::kBFloat16)) return std::nullopt;
  Node* const wide = OnlyUser(narrow->output());
  if (wide == nullptr || !IsCastTo(wide, at::kFloat)) return std::nullopt;
  return Rounding{narrow, wide};
}

// What a layer in bfloat16 takes: the output of another as it is.
Value* Unrounded(const Rounding& rounding) {
  Value* const x = rounding.to_bfloat16->input(0);
  const Node* const wide = x->node();
  const bool was_layer = IsCastTo(wide, at::kFloat) && IsPackedLinear(wide->input(0)->node());
  return was_layer ? wide->input(0) : x;
}

// Whether this processor multiplies bfloat16.
bool HasBfloat16() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16") != 0;
#else
  return false;
#endif
}

bool IsBfloat16(const at::Tensor& tensor) {
  return tensor.equal(tensor.to(at::kBFloat16).to(at::kFloat));
}

// Null where the layer stays torch's.
c10::intrusive_ptr<Layer> LayerOf(const Node* node) {
  const auto weight = ConstantFloats(node->input(1));
  if (!weight || weight->dim() != 2 || weight->numel() < kFewestWeights) return nullptr;
  auto layer = c10::make_intrusive<Layer>();
  layer->weight = *weight;
  layer->columns = weight->size(1);
  const auto bias = torch::jit::toIValue(node->input(2));
  if (bias && bias->isNone()) return layer;
  layer->bias = ConstantFloats(node->input(2));
  return layer->bias && layer->bias->numel() == weight->size(0) ? layer : nullptr;
}

void Replace(Node* node) {
  const auto layer = LayerOf(node);
  if (layer == nullptr) return;
  Value* x = node->input(0);
  Value* replaced = node->output();  // Float32.
  const auto before = RoundingBefore(x);
  const auto behind = RoundingBehind(replaced);
  const bool narrow = before && behind && HasBfloat16() && IsBfloat16(layer->weight);
  if (narrow) {
    layer->type = at::kBFloat16;
    layer->weight = layer->weight.to(at::kBFloat16);
    layer->columns = DivideUp(layer->columns, kNarrowColumns) * kNarrowColumns;
    x = Unrounded(*before);
    replaced = behind->to_float32->output();
  }
  Value* rectified = replaced;
  if (Node* user = OnlyUser(replaced); user != nullptr && user->kind() == c10::aten::relu) {
    layer->relu = true;
    rectified = user->output();
  }
  static const auto pack = *Find<Pack>("mkldnn::_reorder_linear_weight");
  const int64_t zeros = layer->columns - layer->weight.size(1);
  layer->packed = pack.call(at::constant_pad_nd(layer->weight, {0, zeros}), std::nullopt);
  Compiled().Compile(*layer);
  const torch::jit::WithInsertPoint here(node);
  Value* const constant = node->owningGraph()->insertConstant(c10::IValue(layer));
  Node* const linear = node->owningGraph()->create(kLinearKind, {x, constant});
  linear->output()->setType(c10::TensorType::get());
  linear->insertBefore(node);
  if (rectified != replaced) rectified->replaceAllUsesWith(narrow ? replaced : linear->output());
  if (narrow) {
    behind->to_float32->replaceInput(0, linear->output());
  } else {
    replaced->replaceAllUsesWith(linear->output());
  }
}

void ReplaceIn(torch::jit::Block* block) {
  std::vector<Node*> linears;
  for (Node* node : block->nodes()) {
    for (torch::jit::Block* inner : node->blocks()) ReplaceIn(inner);
    if (node->kind() == c10::aten::linear) linears.push_back(node);
  }
  for (Node* node : linears) Replace(node);
}

}  // namespace

LinearPiece FirstPiece(int64_t rows, bool bfloat16) {
  if (rows >= kLargestPiece) return {kLargestPiece, kLargestPiece};
  if (rows > kWholePiece && !bfloat16) return {kWholePiece, kWholePiece};
  return {rows, ComputedRows(rows, bfloat16)};
}

bool IsCastTo(const Node* node, at::ScalarType type) {
  if (node->kind() != c10::aten::to || node->inputs().size() < 2) return false;
  const auto given = torch::jit::toIValue(node->input(1));
  return given && given->isInt() && given->toInt() == static_cast<int64_t>(type);
}

bool IsPackedLinear(const Node* node) { return node->kind() == kLinearKind; }

void PackLinears(const std::shared_ptr<torch::jit::Graph>& graph) {
  if (!at::hasMKLDNN() || !at::globalContext().userEnabledMkldnn() ||
      !Find<Pack>("mkldnn::_reorder_linear_weight") ||
      !Find<Pointwise>("mkldnn::_linear_pointwise")) {
    return;
  }
  const c10::InferenceMode no_gradients;
  ReplaceIn(graph->block());
  torch::jit::EliminateDeadCode(graph);
}

}  // namespace embershard
