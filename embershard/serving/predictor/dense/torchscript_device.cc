#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>

#include <functional>
#include <stdexcept>
#include <utility>

#include "dense/tensors.h"
#include "dense/torchscript_module.h"
#include "dense/torchscript_passes.h"

namespace embershard {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

void ForEachNode(torch::jit::Block* block, const std::function<void(Node*)>& visit) {
  for (Node* node : block->nodes()) {
    visit(node);
    for (torch::jit::Block* inner : node->blocks()) ForEachNode(inner, visit);
  }
}

// Operations that torch's dispatcher does not know are TorchScript's own, such as tuples and loops,
// which run anywhere.
bool RunsOn(const Node& node, at::Device device) {
  const torch::jit::Operator* op = node.maybeOperator();
  if (op == nullptr) return true;
  const auto handle = c10::Dispatcher::singleton().findSchema(op->schema().operator_name());
  if (!handle) return true;
  const c10::DispatchKey key = c10::computeDispatchKey(std::nullopt, std::nullopt, device);
  return handle->hasKernelForDispatchKey(key) ||
         handle->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) ||
         handle->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
         handle->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional);
}

void ReplaceConstant(Node* node, const c10::IValue& value) {
  torch::jit::WithInsertPoint insert(node);
  Value* replacement = node->owningGraph()->insertConstant(value);
  node->output()->replaceAllUsesWith(replacement);
}

// A constant float32 tensor that rounding to bfloat16 does not change.
bool IsBfloat16ByValue(Value* value) {
  const auto constant = torch::jit::toIValue(value);
  if (!constant || !constant->isTensor()) return false;
  const at::Tensor& tensor = constant->toTensor();
  return tensor.scalar_type() == at::kFloat &&
         tensor.to(at::kBFloat16).to(at::kFloat).equal(tensor);
}

}  // namespace

Status MoveGraph(const std::shared_ptr<Graph>& graph, at::Device device) {
  const auto to_cpu = c10::Symbol::fromQualString("aten::cpu");
  const auto to_cuda = c10::Symbol::fromQualString("aten::cuda");
  std::vector<Node*> constants;
  std::string refused;
  ForEachNode(graph->block(), [&](Node* node) {
    if (node->kind() == torch::jit::prim::Constant) {
      constants.push_back(node);
      return;
    }
    const bool changes_device = node->kind() == to_cpu || node->kind() == to_cuda;
    if (refused.empty() && (changes_device || !RunsOn(*node, device))) {
      refused = node->kind().toQualString();
    }
  });
  if (!refused.empty()) {
    return BadPackage("operation ", refused, ": expected one that runs on ", device.str());
  }
  for (Node* node : constants) {
    const auto value = torch::jit::toIValue(node->output());
    if (!value) continue;
    if (value->isTensor() && value->toTensor().device() != device) {
      ReplaceConstant(node, value->toTensor().to(device));
    } else if (value->isDevice() && value->toDevice() != device) {
      ReplaceConstant(node, device);
    }
  }
  torch::jit::EliminateDeadCode(graph);
  return {};
}

void RunLinearsInBfloat16(const std::shared_ptr<Graph>& graph) {
  std::vector<Node*> linears;
  ForEachNode(graph->block(), [&](Node* node) {
    if (node->kind() != c10::aten::linear || node->output()->uses().size() != 1) return;
    Node* const widened = node->input(0)->node();
    Node* const rounded = node->output()->uses()[0].user;
    if (!IsCastTo(widened, at::kFloat) || !IsCastTo(widened->input(0)->node(), at::kBFloat16) ||
        !IsCastTo(rounded, at::kBFloat16)) {
      return;
    }
    const bool has_constants = torch::jit::toIValue(node->input(2)).has_value();
    if (has_constants && IsBfloat16ByValue(node->input(1))) linears.push_back(node);
  });
  for (Node* node : linears) {
    torch::jit::WithInsertPoint insert(node);
    node->replaceInput(0, node->input(0)->node()->input(0));
    for (size_t i = 1; i <= 2; ++i) {
      const auto constant = torch::jit::toIValue(node->input(i));
      if (!constant->isTensor()) continue;
      node->replaceInput(i, graph->insertConstant(constant->toTensor().to(at::kBFloat16)));
    }
    node->output()->setType(c10::TensorType::get());
    Node* const rounded = node->output()->uses()[0].user;
    rounded->output()->replaceAllUsesWith(node->output());
  }
  torch::jit::EliminateDeadCode(graph);
}

DeviceProgram::DeviceProgram(torch::jit::Module module, const Schema& schema, at::Device device)
    : schema_(schema),
      device_(device),
      module_(std::move(module)),
      forward_(module_.get_method("forward")) {}

void DeviceProgram::Run(const DenseProgramInputs& inputs, float* outputs) {
  const c10::InferenceMode no_gradients;
  const std::vector<at::Tensor> results = CallForward(&forward_, schema_, inputs, device_);
  const Status checked = CheckOutputs(schema_, results, inputs);
  if (!checked.ok()) throw std::runtime_error(checked.message());
  for (const at::Tensor& result : results) {
    const at::Tensor flat = result.reshape({-1});
    at::for_blob(outputs, {flat.numel()})
        .options(at::TensorOptions(at::kFloat).device(device_))
        .target_device(device_)
        .make_tensor()
        .copy_(flat);
    outputs += flat.numel();
  }
}

Result<std::unique_ptr<DeviceProgram>> LoadDeviceProgram(ProgramBytes program, const Schema& schema,
                                                         at::Device device) {
  const std::string where = program.name + ": ";
  ASSIGN_OR_RETURN(torch::jit::Module module, LoadModule(std::move(program), device));
  const std::shared_ptr<Graph> graph = module.get_method("forward").graph();
  const Status moved = MoveGraph(graph, device);
  if (!moved.ok()) return BadPackage(where, moved.message());
  RunLinearsInBfloat16(graph);
  return std::make_unique<DeviceProgram>(std::move(module), schema, device);
}

}  // namespace embershard
