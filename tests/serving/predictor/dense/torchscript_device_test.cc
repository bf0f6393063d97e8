// Programs on devices, as far as the CPU and torch's meta device show it.

#include <ATen/ops/allclose.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/irparser.h>

#include <memory>
#include <string>

#include "dense/programs.h"
#include "dense/torchscript_module.h"

namespace embershard {
namespace {

std::shared_ptr<torch::jit::Graph> Parsed(const std::string& text) {
  auto graph = std::make_shared<torch::jit::Graph>();
  torch::jit::parseIR(text, graph.get());
  return graph;
}

TEST(MoveGraph, MovesConstantTensorsAndDeviceArguments) {
  torch::jit::Module module("moved");
  module.register_parameter("weight", at::linspace(0, 1, 4), false);
  module.define(
      "def forward(self, x):\n"
      "  return x + self.weight + torch.zeros([4], device=torch.device('cpu'))\n");
  module.eval();
  module = torch::jit::freeze(module);
  const auto graph = module.get_method("forward").graph();
  const Status moved = MoveGraph(graph, at::kMeta);
  ASSERT_TRUE(moved.ok()) << moved.message();
  int constants = 0;
  for (const auto* node : graph->nodes()) {
    if (node->kind() != torch::jit::prim::Constant) continue;
    const auto value = torch::jit::toIValue(node->output());
    if (!value->isTensor() && !value->isDevice()) continue;
    const c10::Device device = value->isTensor() ? value->toTensor().device() : value->toDevice();
    EXPECT_EQ(device, c10::Device(at::kMeta));
    ++constants;
  }
  EXPECT_GE(constants, 2);  // The weight, and the zeros or their device.
}

TEST(MoveGraph, NamesTheOperationThatCannotMove) {
  const auto graph = Parsed(R"IR(
graph(%x : Tensor):
  %y : Tensor = aten::relu(%x)
  %z : Tensor = aten::cpu(%y)
  return (%z))IR");
  EXPECT_EQ(MoveGraph(graph, at::kCPU).message(),
            "operation aten::cpu: expected one that runs on cpu");
}

TEST(RunLinearsInBfloat16, RoundsWhereTheProgramRounds) {
  torch::jit::Module before = Program("bfloat16_linears");
  torch::jit::Module after = Program("bfloat16_linears");
  const auto graph = after.get_method("forward").graph();
  RunLinearsInBfloat16(graph);
  int in_bfloat16 = 0;
  for (const auto* node : graph->nodes()) {
    if (node->kind() != c10::aten::linear) continue;
    const auto weight = torch::jit::toIValue(node->input(1));
    in_bfloat16 += weight->toTensor().scalar_type() == at::kBFloat16 ? 1 : 0;
  }
  EXPECT_EQ(in_bfloat16, 2);  // The weights of the third have more digits.
  for (const int64_t rows : {1, 5, 203}) {
    const at::Tensor expected = Score(before, Rows(rows));
    const at::Tensor got = Score(after, Rows(rows));
    // A sum may round to the neighbour, and so may the next layer's.
    EXPECT_TRUE(at::allclose(got, expected, /*rtol=*/0x1p-6, /*atol=*/0x1p-6)) << rows;
  }
}

TEST(DeviceProgram, OutputsLieOneAfterAnother) {
  Schema schema;
  schema.request_dense_columns = 1;
  schema.example_dense_columns = 1;
  schema.request_pooled_columns = 2;
  schema.example_pooled_columns = 3;
  schema.outputs = {{"score", Scope::kExample, {}, 1},
                    {"pair", Scope::kExample, {2}, 2},
                    {"user", Scope::kRequest, {2}, 2}};
  auto program = LoadDeviceProgram({.name = "sound.pt", .bytes = testing::ReadTestProgram("sound")},
                                   schema, at::kCPU);
  ASSERT_TRUE(program.ok()) << program.status().message();
  float request_dense[] = {100};
  float request_pooled[] = {1, 2};
  float example_dense[] = {1, 2};
  float example_pooled[] = {3, 4, 5, 6, 7, 8};
  const int64_t request_of_example[] = {0, 0};
  std::vector<float> outputs(8);
  (*program)->Run({.requests = 1,
                   .examples = 2,
                   .request_dense = request_dense,
                   .request_pooled = request_pooled,
                   .example_dense = example_dense,
                   .example_pooled = example_pooled,
                   .request_of_example = request_of_example},
                  outputs.data());
  // score: 103 + 10 + 12, 103 + 20 + 21; the pairs; twice the user's columns.
  EXPECT_EQ(outputs, (std::vector<float>{125, 144, 3, 4, 6, 7, 2, 4}));
}

}  // namespace
}  // namespace embershard
