#include "dense/torchscript_layer.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

namespace embershard {
namespace {

struct Case {
  int64_t rows;
  int64_t taken;
  int64_t computed;
};

TEST(FirstPiece, TakesAllRowsUpTo256InFloat32) {
  for (const auto& [rows, taken, computed] :
       {Case{1, 1, 1}, Case{3, 3, 4}, Case{8, 8, 8}, Case{9, 9, 16}, Case{17, 17, 24},
        Case{64, 64, 64}, Case{65, 65, 80}, Case{200, 200, 208}, Case{256, 256, 256},
        Case{257, 256, 256}, Case{511, 256, 256}, Case{512, 512, 512}, Case{1300, 512, 512}}) {
    const LinearPiece piece = FirstPiece(rows, /*bfloat16=*/false);
    EXPECT_EQ(piece.rows, taken) << rows;
    EXPECT_EQ(piece.computed, computed) << rows;
  }
}

TEST(FirstPiece, TakesAllRowsUpTo512InBfloat16) {
  for (const auto& [rows, taken, computed] :
       {Case{1, 1, 1}, Case{3, 3, 4}, Case{17, 17, 32}, Case{32, 32, 32}, Case{33, 33, 64},
        Case{64, 64, 64}, Case{200, 200, 224}, Case{481, 481, 512}, Case{512, 512, 512},
        Case{1300, 512, 512}}) {
    const LinearPiece piece = FirstPiece(rows, /*bfloat16=*/true);
    EXPECT_EQ(piece.rows, taken) << rows;
    EXPECT_EQ(piece.computed, computed) << rows;
  }
}

TEST(FirstPiece, DropsAtMostSevenRowsOrAQuarter) {
  for (int64_t rows = 1; rows <= 2000; ++rows) {
    int64_t dropped = 0;
    for (int64_t left = rows; left > 0;) {
      const LinearPiece piece = FirstPiece(left, /*bfloat16=*/false);
      dropped += piece.computed - piece.rows;
      left -= piece.rows;
    }
    ASSERT_LE(dropped, std::max<int64_t>(7, rows / 4)) << rows;
  }
}

// More shapes than are remembered, and each a second time: what was compiled before is right again.
TEST(PackedLayer, EveryShapeIsRightTheFirstTimeAndTheNext) {
  if (!CanPack()) GTEST_SKIP() << "torch has no oneDNN";
  for (int64_t i = 0; i < 48; ++i) {
    PackedLayer layer;
    layer.columns = 16 + i % 24;
    layer.weight = at::rand({48, layer.columns});
    layer.bias = at::rand({48});
    Pack(&layer);
    const at::Tensor x = at::rand({21, layer.columns});
    EXPECT_TRUE(
        at::allclose(RunLayer(layer, x), at::linear(x, layer.weight, layer.bias), 1e-5, 1e-5))
        << i;
  }
}

}  // namespace
}  // namespace embershard
