#include "dense/torchscript_layer.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

#include <cstdint>

namespace embershard {
namespace {

struct Case {
  int64_t rows;
  int64_t taken;
  int64_t computed;
};

TEST(FirstPiece, TakesAllRowsUpTo512) {
  for (const auto& [rows, taken, computed] :
       {Case{1, 1, 1}, Case{3, 3, 4}, Case{17, 17, 32}, Case{32, 32, 32}, Case{33, 33, 64},
        Case{64, 64, 64}, Case{200, 200, 224}, Case{481, 481, 512}, Case{512, 512, 512},
        Case{1300, 512, 512}}) {
    const LinearPiece piece = FirstPiece(rows);
    EXPECT_EQ(piece.rows, taken) << rows;
    EXPECT_EQ(piece.computed, computed) << rows;
  }
}

// More shapes than are remembered, and each a second time: what was compiled before is right again.
TEST(PackedLayer, EveryShapeIsRightTheFirstTimeAndTheNext) {
  if (!CanPack(at::kBFloat16)) GTEST_SKIP() << "no such processor, or torch has no oneDNN";
  for (int64_t i = 0; i < 48; ++i) {
    PackedLayer layer;
    layer.type = at::kBFloat16;
    layer.columns = 64;
    layer.weight = at::rand({32 + i % 24, layer.columns}).to(at::kBFloat16);
    layer.bias = at::rand({layer.weight.size(0)});
    Pack(&layer);
    const at::Tensor x = at::rand({21, layer.columns}).to(at::kBFloat16);
    const at::Tensor expected =
        at::linear(x.to(at::kFloat), layer.weight.to(at::kFloat), layer.bias);
    EXPECT_TRUE(at::allclose(RunLayer(layer, x).to(at::kFloat), expected, 1.0 / 256, 0)) << i;
  }
}

}  // namespace
}  // namespace embershard
