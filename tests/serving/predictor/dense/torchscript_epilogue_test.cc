#include <ATen/ops/allclose.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/sub.h>
#include <gtest/gtest.h>

#include <cmath>

#include "dense/programs.h"
#include "dense/torchscript_layer.h"
#include "dense/torchscript_passes.h"

namespace embershard {
namespace {

torch::jit::Module Packed() {
  torch::jit::Module module = Program("gates");
  PackLinears(module.get_method("forward").graph());
  return module;
}

torch::jit::Module Fused() {
  torch::jit::Module module = Packed();
  FuseEpilogues(module.get_method("forward").graph());
  return module;
}

TEST(FuseEpilogues, TakesTheProductAndTheSumBehindALayerThatNobodyElseNeeds) {
  if (!CanPack(at::kBFloat16)) GTEST_SKIP() << "no such processor, or torch has no oneDNN";
  EXPECT_EQ(Count(Packed(), "aten::mul"), 5);
  EXPECT_EQ(Count(Packed(), "aten::add"), 6);
  const torch::jit::Module module = Fused();
  EXPECT_EQ(Count(module, "embershard::gate"), 3);
  EXPECT_EQ(Count(module, "aten::mul"), 2);
  EXPECT_EQ(Count(module, "aten::add"), 3);
}

TEST(FuseEpilogues, KeepsWhatTheProgramComputes) {
  torch::jit::Module before = Packed();
  torch::jit::Module after = Fused();
  for (const int64_t rows : {0, 1, 2, 33, 600}) {
    const at::Tensor input = Rows(rows);
    const at::Tensor expected = Score(before, input);
    const at::Tensor score = Score(after, input);
    // A value that is rounded once instead of twice may be off by 1/256 after the next layer.
    EXPECT_TRUE(at::allclose(score, expected, 2e-2, 2e-2)) << rows;
    const at::Tensor difference = at::sub(score, expected).abs().sum();
    EXPECT_LE(difference.item().toFloat(), 1e-3F * static_cast<float>(score.numel())) << rows;
  }
}

TEST(FuseEpilogues, TakesRowsThatAreNotContiguous) {
  torch::jit::Module before = Packed();
  torch::jit::Module after = Fused();
  const at::Tensor input = at::linspace(-1, 1, kWidth * 3).reshape({kWidth, 3}).t();
  EXPECT_TRUE(at::allclose(Score(after, input), Score(before, input), 8e-3, 4e-3));
}

TEST(FuseEpilogues, NaNStaysInItsRow) {
  torch::jit::Module after = Fused();
  const at::Tensor input = Rows(21);
  const at::Tensor expected = Score(after, input);
  input[3].fill_(std::nan(""));
  const at::Tensor score = Score(after, input);
  EXPECT_TRUE(score[3].isnan().all().item<bool>());
  EXPECT_TRUE(score.narrow(0, 0, 3).equal(expected.narrow(0, 0, 3)));
  EXPECT_TRUE(score.narrow(0, 4, 17).equal(expected.narrow(0, 4, 17)));
}

}  // namespace
}  // namespace embershard
