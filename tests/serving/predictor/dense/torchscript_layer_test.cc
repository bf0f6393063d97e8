#include "dense/torchscript_layer.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/relu.h>
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

// Runs more shapes than are remembered, and each of them twice.
TEST(PackedLayer, EveryShapeIsRightTheFirstTimeAndTheNext) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    if (!CanPack(type)) continue;
    for (int64_t i = 0; i < 48; ++i) {
      PackedLayer layer;
      layer.type = type;
      layer.columns = 64;
      layer.weight = at::rand({32 + i % 24, layer.columns}).to(type);
      layer.bias = at::rand({layer.weight.size(0)});
      Pack(&layer);
      const at::Tensor x = at::rand({21, layer.columns}).to(type);
      const at::Tensor expected =
          at::linear(x.to(at::kFloat), layer.weight.to(at::kFloat), layer.bias);
      const double tolerance = type == at::kFloat ? 1e-5 : 1.0 / 256;
      EXPECT_TRUE(at::allclose(RunLayers(layer, x).to(at::kFloat), expected, tolerance, 0)) << i;
    }
  }
}

TEST(PackedLayer, LayersBehindItTakeWhatItGives) {
  if (!UsesOwnKernels()) GTEST_SKIP() << "EMBERSHARD_ISA=avx2 runs it";
  const auto layer_of = [](int64_t inputs, int64_t outputs, bool relu) {
    auto layer = c10::make_intrusive<PackedLayer>();
    layer->weight = at::rand({outputs, inputs}) - 0.5;
    layer->bias = at::rand({outputs}) - 0.5;
    layer->columns = inputs;
    layer->relu = relu;
    Pack(layer.get());
    return layer;
  };
  const auto first = layer_of(40, 530, true);
  first->next = layer_of(530, 70, false);
  first->next->next = layer_of(70, 1, true);
  for (const int threads : {1, 2}) {
    at::set_num_threads(threads);
    for (const int64_t rows : {0, 1, 90, 300, 700}) {
      const at::Tensor x = at::rand({rows, 40}) - 0.5;
      at::Tensor expected = x;
      for (const PackedLayer* layer = first.get(); layer != nullptr; layer = layer->next.get()) {
        expected = at::linear(expected, layer->weight, layer->bias);
        if (layer->relu) expected = at::relu(expected);
      }
      EXPECT_TRUE(at::allclose(RunLayers(*first, x), expected, 1e-4, 1e-4)) << rows;
    }
  }
  at::set_num_threads(1);
}

}  // namespace
}  // namespace embershard
