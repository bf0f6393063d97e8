// A linear layer on oneDNN.
//
// torch itself calls MKL for one, which is slow on some processors, and packs weights anew at each
// call. oneDNN, as it comes in torch, gets weights that are packed once. It compiles a kernel for
// each number of rows, which takes a millisecond: batches are cut into chunks of two dozen sizes,
// each of which has run before the first request, of this version or of one before with such a
// layer.

#pragma once

#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>

#include <cstdint>
#include <optional>

namespace embershard {

struct PackedLayer final : torch::CustomClassHolder {
  bool bfloat16() const { return type == at::kBFloat16; }

  at::ScalarType type = at::kFloat;  // Of inputs, weights and outputs; sums are float32.
  at::Tensor weight;                 // [outputs, inputs]
  std::optional<at::Tensor> bias;    // [outputs]
  at::Tensor packed;                 // [outputs, columns]. Pack() makes it.
  int64_t columns = 0;               // Inputs, and zeros behind them.
  bool relu = false;
};

// Whether torch comes with a oneDNN that is to be used.
bool CanPack();

// Packs the weights, and has kernels compiled for the number of threads that torch has on this
// thread. REQUIRES: CanPack(); all but `packed` is filled in.
void Pack(PackedLayer* layer);

// x [..., inputs], of any float type; the result [..., outputs] is of the layer's. Throws what
// torch does.
at::Tensor RunLayer(const PackedLayer& layer, const at::Tensor& x);

// Rows of one piece of a batch, and how many are computed for them: what the rest gives is dropped.
struct LinearPiece {
  int64_t rows = 0;
  int64_t computed = 0;
};

// The first piece of `rows` > 0, up to 512 of them.
//
//   float32    512 where there are as many, else 256, else all: a power of two up to 8, then a
//              multiple of 8, above 64 one of 16
//   bfloat16   all rows: a power of two up to 32, above it a multiple of 32
//
// Another piece reads all weights again, which takes as long as a dozen rows or two.
LinearPiece FirstPiece(int64_t rows, bool bfloat16);

}  // namespace embershard
