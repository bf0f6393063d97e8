#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <bit>
#include <cstdint>

#include "dense/torchscript_passes.h"

namespace embershard {
namespace {

using torch::jit::Node;
using torch::jit::Value;

constexpr int64_t kGrain = 32768;  // Minimum number of values for one thread.

const auto kGateKind = c10::Symbol::fromQualString("embershard::gate");

// `layer` has the bits of bfloat16 numbers.
[[gnu::target_clones("avx512f", "avx2", "default")]]
void Gate(const float* gate, const uint16_t* layer, const float* x, float* out, int64_t size) {
  for (int64_t i = 0; i < size; ++i) {
    out[i] = gate[i] * std::bit_cast<float>(uint32_t{layer[i]} << 16) + x[i];
  }
}

bool IsContiguous(const at::Tensor& tensor, at::ScalarType type, const at::Tensor& like) {
  return tensor.scalar_type() == type && tensor.is_contiguous() && tensor.sizes() == like.sizes();
}

at::Tensor GateOf(const at::Tensor& gate, const at::Tensor& layer, const at::Tensor& x) {
  if (!IsContiguous(gate, at::kFloat, layer) || !IsContiguous(layer, at::kBFloat16, layer) ||
      !IsContiguous(x, at::kFloat, layer)) {
    return at::add(at::mul(gate, layer.to(at::kFloat)), x);
  }
  at::Tensor out = at::empty_like(x);
  const float* const gates = gate.const_data_ptr<float>();
  const auto* const bits = static_cast<const uint16_t*>(layer.const_data_ptr());
  const float* const values = x.const_data_ptr<float>();
  float* const results = out.mutable_data_ptr<float>();
  at::parallel_for(0, out.numel(), kGrain, [&](int64_t begin, int64_t end) {
    Gate(gates + begin, bits + begin, values + begin, results + begin, end - begin);
  });
  return out;
}

const torch::jit::RegisterOperators kEpilogueOperators({torch::jit::Operator(
    "embershard::gate(Tensor gate, Tensor layer, Tensor x) -> Tensor",
    [](torch::jit::Stack& stack) {
      const at::Tensor x = torch::jit::pop(stack).toTensor();
      const at::Tensor layer = torch::jit::pop(stack).toTensor();
      const at::Tensor gate = torch::jit::pop(stack).toTensor();
      torch::jit::push(stack, GateOf(gate, layer, x));
    },
    c10::AliasAnalysisKind::FROM_SCHEMA)});

// The output of the packed bfloat16 layer of which `value` is the float32 copy, or null.
Value* LayerBefore(const Value* value) {
  const Node* const wide = value->node();
  if (value->uses().size() != 1 || !IsCastTo(wide, at::kFloat)) return nullptr;
  Value* const layer = wide->input(0);
  return IsPackedLinear(layer->node()) ? layer : nullptr;
}

bool IsTensor(const Value* value) {  // False for numbers.
  return value->type()->isSubtypeOf(*c10::TensorType::get());
}

Value* OtherInput(const Node* node, const Value* input) {
  return node->input(0) == input ? node->input(1) : node->input(0);
}

void Fuse(Node* add) {
  const auto alpha = torch::jit::toIValue(add->input(2));
  if (!alpha || !alpha->isInt() || alpha->toInt() != 1) return;
  for (Value* const product : {add->input(0), add->input(1)}) {
    const Node* const mul = product->node();
    if (mul->kind() != c10::aten::mul || product->uses().size() != 1) continue;
    if (!IsTensor(mul->input(1)) || !IsTensor(OtherInput(add, product))) continue;
    for (Value* const wide : {mul->input(0), mul->input(1)}) {
      Value* const layer = LayerBefore(wide);
      if (layer == nullptr) continue;
      Node* const gate = add->owningGraph()->create(
          kGateKind, {OtherInput(mul, wide), layer, OtherInput(add, product)});
      gate->output()->setType(c10::TensorType::get());
      gate->insertBefore(add);
      add->output()->replaceAllUsesWith(gate->output());
      return;
    }
  }
}

void FuseIn(torch::jit::Block* block) {
  for (Node* node : block->nodes()) {
    for (torch::jit::Block* inner : node->blocks()) FuseIn(inner);
    if (node->kind() == c10::aten::add && node->inputs().size() == 3) Fuse(node);
  }
}

}  // namespace

void FuseEpilogues(const std::shared_ptr<torch::jit::Graph>& graph) {
  FuseIn(graph->block());
  torch::jit::EliminateDeadCode(graph);
}

}  // namespace embershard
