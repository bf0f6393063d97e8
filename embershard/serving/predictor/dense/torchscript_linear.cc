#include <ATen/core/Tensor.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/custom_class.h>

#include <optional>
#include <utility>
#include <vector>

#include "base/divide_up.h"
#include "dense/torchscript_layer.h"
#include "dense/torchscript_passes.h"

namespace embershard {
namespace {

using torch::jit::Node;
using torch::jit::Value;

// The number of bfloat16 inputs is padded to a multiple of this, else they are copied at each call.
constexpr int64_t kNarrowColumns = 32;
constexpr int64_t kFewestWeights = 16384;  // Smaller layers gain nothing from oneDNN.

const auto kLinearKind = c10::Symbol::fromQualString("embershard::linear");

const auto kLayerClass = torch::class_<PackedLayer>("embershard", "Layer");

const torch::jit::RegisterOperators kLinearOperators({torch::jit::Operator(
    "embershard::linear(Tensor x, __torch__.torch.classes.embershard.Layer layer) -> Tensor",
    [](torch::jit::Stack& stack) {
      const auto layer = torch::jit::pop(stack).toCustomClass<PackedLayer>();
      const at::Tensor x = torch::jit::pop(stack).toTensor();
      torch::jit::push(stack, RunLayers(*layer, x));
    },
    c10::AliasAnalysisKind::FROM_SCHEMA)});

std::optional<at::Tensor> ConstantFloats(const Value* value) {
  const auto constant = torch::jit::toIValue(value);
  if (!constant || !constant->isTensor()) return std::nullopt;
  const at::Tensor& tensor = constant->toTensor();
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

// The input of a bfloat16 layer, without the rounding.
Value* Unrounded(const Rounding& rounding) {
  Value* const x = rounding.to_bfloat16->input(0);
  const Node* const wide = x->node();
  const bool was_layer = IsCastTo(wide, at::kFloat) && IsPackedLinear(wide->input(0)->node());
  return was_layer ? wide->input(0) : x;
}

bool IsBfloat16(const at::Tensor& tensor) {
  return tensor.equal(tensor.to(at::kBFloat16).to(at::kFloat));
}

// Returns the last of the layers that use vector_products.h and whose output only this node uses.
// Null if there is none, or if its outputs do not match this node's inputs: the call then reports
// the program's error.
PackedLayer* LayersBefore(const Node* node) {
  const Value* const x = node->input(0);
  if (!IsPackedLinear(x->node()) || OnlyUser(x) != node) return nullptr;
  if (x->node()->owningBlock() != node->owningBlock()) return nullptr;
  const auto constant = torch::jit::toIValue(x->node()->input(1));
  PackedLayer* layer = constant->toCustomClass<PackedLayer>().get();  // The graph keeps it.
  if (!layer->own) return nullptr;
  while (layer->next != nullptr) layer = layer->next.get();
  const auto weight = ConstantFloats(node->input(1));
  return weight && layer->weight.size(0) == weight->size(1) ? layer : nullptr;
}

// Returns null if the layer cannot be packed.
c10::intrusive_ptr<PackedLayer> LayerOf(const Node* node) {
  const auto weight = ConstantFloats(node->input(1));
  if (!weight || weight->dim() != 2 || weight->numel() == 0) return nullptr;
  if (weight->numel() < kFewestWeights && !UsesOwnKernels()) return nullptr;
  auto layer = c10::make_intrusive<PackedLayer>();
  layer->weight = *weight;
  layer->columns = weight->size(1);
  const auto bias = torch::jit::toIValue(node->input(2));
  if (bias && bias->isNone()) return layer;
  layer->bias = ConstantFloats(node->input(2));
  return layer->bias && layer->bias->numel() == weight->size(0) ? layer : nullptr;
}

void Unround(Node* node) {
  const auto weight = ConstantFloats(node->input(1));
  const auto before = RoundingBefore(node->input(0));
  const auto behind = RoundingBehind(node->output());
  if (!weight || !before || !behind || !IsBfloat16(*weight)) return;
  node->replaceInput(0, before->to_bfloat16->input(0));
  behind->to_float32->output()->replaceAllUsesWith(node->output());
}

void Replace(Node* node) {
  const auto layer = LayerOf(node);
  if (layer == nullptr) return;
  Value* x = node->input(0);
  Value* replaced = node->output();  // Always float32.
  const auto before = RoundingBefore(x);
  const auto behind = RoundingBehind(replaced);
  const bool narrow = before && behind && layer->weight.numel() >= kFewestWeights &&
                      CanPack(at::kBFloat16) && IsBfloat16(layer->weight);
  if (!narrow && !CanPack(at::kFloat)) return;
  if (narrow) {
    layer->type = at::kBFloat16;
    layer->weight = layer->weight.to(at::kBFloat16);
    layer->columns = DivideUp(layer->columns, kNarrowColumns) * kNarrowColumns;
    x = Unrounded(*before);
    replaced = behind->to_float32->output();
  }
  Value* rectified = replaced;
  if (Node* user = OnlyUser(replaced); user != nullptr && user->kind() == c10::aten::relu &&
                                       user->owningBlock() == node->owningBlock()) {
    layer->relu = true;
    rectified = user->output();
  }
  Pack(layer.get());
  if (PackedLayer* const ahead = layer->own ? LayersBefore(node) : nullptr; ahead != nullptr) {
    ahead->next = layer;
    rectified->replaceAllUsesWith(x);
    if (rectified != replaced) rectified->node()->destroy();
    return node->destroy();
  }
  const torch::jit::WithInsertPoint here(node);
  Value* const constant = node->owningGraph()->insertConstant(c10::IValue(layer));
  Node* const linear = node->owningGraph()->create(kLinearKind, {x, constant});
  linear->output()->setType(c10::TensorType::get());
  linear->insertBefore(node);
  if (rectified != replaced) {
    rectified->replaceAllUsesWith(narrow ? replaced : linear->output());
    rectified->node()->destroy();
  }
  if (narrow) {
    behind->to_float32->replaceInput(0, linear->output());
  } else {
    replaced->replaceAllUsesWith(linear->output());
  }
}

void ForEachLinear(torch::jit::Block* block, void (*change)(Node*)) {
  std::vector<Node*> linears;
  for (Node* node : block->nodes()) {
    for (torch::jit::Block* inner : node->blocks()) ForEachLinear(inner, change);
    if (node->kind() == c10::aten::linear) linears.push_back(node);
  }
  for (Node* node : linears) change(node);
}

}  // namespace

bool IsCastTo(const Node* node, at::ScalarType type) {
  if (node->kind() != c10::aten::to || node->inputs().size() < 2) return false;
  const auto to_type = torch::jit::toIValue(node->input(1));
  return to_type && to_type->isInt() && to_type->toInt() == static_cast<int64_t>(type);
}

bool IsPackedLinear(const Node* node) { return node->kind() == kLinearKind; }

void PackLinears(const std::shared_ptr<torch::jit::Graph>& graph, bool float32) {
  const c10::InferenceMode no_gradients;
  if (float32) {
    ForEachLinear(graph->block(), Unround);
    torch::jit::EliminateDeadCode(graph);  // Otherwise the unused roundings still use the layers.
  }
  ForEachLinear(graph->block(), Replace);
  torch::jit::EliminateDeadCode(graph);
}

}  // namespace embershard
