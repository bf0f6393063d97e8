#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

#include <cmath>
#include <exception>
#include <string>

#include "dense/programs.h"
#include "dense/torchscript_layer.h"
#include "dense/torchscript_passes.h"

namespace embershard {
namespace {

torch::jit::Module Packed(const std::string& name, bool float32 = false) {
  torch::jit::Module module = Program(name);
  PackLinears(module.get_method("forward").graph(), float32);
  return module;
}

class PackLinearsTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (!CanPack(at::kFloat)) GTEST_SKIP() << "no such processor, and torch has no oneDNN";
    at::set_num_threads(GetParam());
  }
  void TearDown() override { at::set_num_threads(1); }
};

TEST_P(PackLinearsTest, PacksLargeLayersOfConstantsTheirReluAndLayersBehindThem) {
  EXPECT_EQ(Count(Program("linears"), "aten::linear"), 6);
  EXPECT_EQ(Count(Program("linears"), "aten::relu"), 3);
  const torch::jit::Module module = Packed("linears");
  // Our own kernels merge a layer with the next one, and also run the small layer. The layer whose
  // weight is an input stays. One relu stays, because its linear has another user.
  EXPECT_EQ(Count(module, "embershard::linear"), UsesOwnKernels() ? 3 : 2);
  EXPECT_EQ(Count(module, "aten::linear"), UsesOwnKernels() ? 1 : 4);
  EXPECT_EQ(Count(module, "aten::relu"), UsesOwnKernels() ? 1 : 2);
}

TEST_P(PackLinearsTest, LayersThatDoNotFitAreAnErrorOfTheCall) {
  torch::jit::Module module("misfit");
  module.register_parameter("first", at::rand({256, 64}), false);
  module.register_parameter("second", at::rand({128, 192}), false);
  module.define(
      "def forward(self, x):\n  return torch.linear(torch.linear(x, self.first), self.second)\n");
  module.eval();
  module = torch::jit::freeze(module);
  PackLinears(module.get_method("forward").graph(), false);
  EXPECT_EQ(Count(module, "embershard::linear"), 2);
  EXPECT_THROW(module.forward({Rows(3)}), std::exception);
}

TEST_P(PackLinearsTest, KeepsWhatTheProgramComputes) {
  torch::jit::Module before = Program("linears");
  torch::jit::Module after = Packed("linears");
  for (const int64_t rows : {0, 1, 2, 5, 16, 17, 203, 1030}) {
    const at::Tensor input = Rows(rows);
    for (const char* name : {"score", "top"}) {
      const at::Tensor expected = Score(before, input, name);
      EXPECT_TRUE(at::allclose(Score(after, input, name), expected, /*rtol=*/1e-5, /*atol=*/1e-6))
          << name << " of " << rows;
    }
  }
}

TEST_P(PackLinearsTest, AReluInALoopStaysThere) {
  torch::jit::Module module("loop");
  module.register_parameter("weight", at::rand({256, 64}) - 0.5, false);
  module.define(
      "def forward(self, x):\n  y = torch.linear(x, self.weight)\n  total = torch.zeros_like(y)\n"
      "  for i in range(x.dim()):\n    total = total + torch.relu(y).add_(1.0)\n  return total\n");
  module.eval();
  torch::jit::Module before = torch::jit::freeze(module);
  torch::jit::Module after = torch::jit::freeze(module);
  PackLinears(after.get_method("forward").graph(), false);
  EXPECT_EQ(Count(after, "embershard::linear"), 1);
  EXPECT_TRUE(at::allclose(after.forward({Rows(3)}).toTensor(),
                           before.forward({Rows(3)}).toTensor(), 1e-5, 1e-5));
}

TEST_P(PackLinearsTest, ARowGivesTheSameBitsInAnyBatch) {
  if (!UsesOwnKernels()) GTEST_SKIP() << "EMBERSHARD_ISA=avx2 runs it";
  torch::jit::Module module = Packed("bfloat16_linears", /*float32=*/true);
  const at::Tensor input = Rows(603);
  const at::Tensor together = Score(module, input);
  for (const int64_t rows : {1, 2, 5, 96, 602}) {
    const at::Tensor fewer = Score(module, input.narrow(0, 603 - rows, rows));
    EXPECT_TRUE(fewer.equal(together.narrow(0, 603 - rows, rows))) << rows;
  }
}

TEST_P(PackLinearsTest, ARowGivesTheSameBitsInAnyPlaceOfAnyFewRows) {
  if (!UsesOwnKernels()) GTEST_SKIP() << "EMBERSHARD_ISA=avx2 runs it";
  torch::jit::Module module = Packed("linears");
  const at::Tensor input = Rows(66);
  for (const char* name : {"score", "top"}) {
    const at::Tensor together = Score(module, input, name);
    for (int64_t rows = 1; rows <= 33; ++rows) {
      for (int64_t first = 0; first < 33; ++first) {
        const at::Tensor fewer = Score(module, input.narrow(0, first, rows), name);
        ASSERT_TRUE(fewer.equal(together.narrow(0, first, rows))) << first << ", " << rows;
      }
    }
  }
}

TEST_P(PackLinearsTest, NaNStaysInItsRow) {
  torch::jit::Module after = Packed("linears");
  const at::Tensor input = Rows(21);
  const at::Tensor expected = Score(after, input);
  input[3].fill_(std::nan(""));
  const at::Tensor score = Score(after, input);
  EXPECT_TRUE(score[3].isnan().all().item<bool>());
  EXPECT_TRUE(score.narrow(0, 0, 3).equal(expected.narrow(0, 0, 3)));
  EXPECT_TRUE(score.narrow(0, 4, 17).equal(expected.narrow(0, 4, 17)));
}

TEST_P(PackLinearsTest, WhatLiesBehindItsRowsInMemoryDoesNotMatter) {
  torch::jit::Module after = Packed("linears");
  const at::Tensor input = Rows(24);
  const at::Tensor expected = Score(after, input.narrow(0, 0, 21).clone());
  input.narrow(0, 21, 3).fill_(std::nan(""));
  EXPECT_TRUE(Score(after, input.narrow(0, 0, 21)).equal(expected));
  EXPECT_TRUE(input.narrow(0, 21, 3).isnan().all().item<bool>());
}

TEST_P(PackLinearsTest, TakesRowsThatAreNotContiguous) {
  torch::jit::Module before = Program("linears");
  torch::jit::Module after = Packed("linears");
  const at::Tensor input = at::linspace(-1, 1, kWidth * 3).reshape({kWidth, 3}).t();
  EXPECT_TRUE(at::allclose(Score(after, input), Score(before, input), 1e-5, 1e-6));
}

TEST_P(PackLinearsTest, InBfloat16LayersRunInFloat32IfOneDnnIsSwitchedOff) {
  at::globalContext().setUserEnabledMkldnn(false);
  const torch::jit::Module module = Packed("bfloat16_linears");
  at::globalContext().setUserEnabledMkldnn(true);
  EXPECT_EQ(Count(module, "embershard::linear"), 3);
  EXPECT_EQ(Count(module, "aten::to"), 12);
}

#if defined(__x86_64__)
TEST_P(PackLinearsTest, InBfloat16CastsGoWhereLayersFollowEachOther) {
  if (!CanPack(at::kBFloat16)) GTEST_SKIP() << "no such processor, or torch has no oneDNN";
  const torch::jit::Module module = Packed("bfloat16_linears");
  EXPECT_EQ(Count(module, "embershard::linear"), 3);
  EXPECT_EQ(Count(module, "aten::linear"), 0);
  EXPECT_EQ(Count(module, "aten::relu"), 0);
  EXPECT_EQ(Count(module, "aten::to"), 5);
}
#endif

TEST_P(PackLinearsTest, InBfloat16ScoresAreThoseOfTheRoundedProgram) {
  torch::jit::Module before = Program("bfloat16_linears");
  torch::jit::Module after = Packed("bfloat16_linears");
  for (const int64_t rows : {0, 1, 5, 43, 200, 600}) {
    const at::Tensor input = Rows(rows);
    // Sums in another order may round to a neighbour, 1/256 away.
    EXPECT_TRUE(at::allclose(Score(after, input), Score(before, input), 8e-3, 4e-3)) << rows;
  }
}

TEST_P(PackLinearsTest, InFloat32RoundingsOfLayersOfBfloat16WeightsGo) {
  torch::jit::Module before = Program("bfloat16_linears");
  torch::jit::Module after = Packed("bfloat16_linears", /*float32=*/true);
  EXPECT_EQ(Count(before, "aten::to"), 12);
  // The third layer keeps them: its weights have more digits.
  EXPECT_EQ(Count(after, "aten::to"), 4);
  // The first two are one.
  EXPECT_EQ(Count(after, "embershard::linear"), UsesOwnKernels() ? 2 : 3);
  EXPECT_EQ(Count(after, "aten::relu"), 0);
  for (const int64_t rows : {0, 1, 43, 600}) {
    const at::Tensor input = Rows(rows);
    EXPECT_TRUE(at::allclose(Score(after, input), Score(before, input), 8e-3, 8e-3)) << rows;
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, PackLinearsTest, ::testing::Values(1, 2),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace embershard
