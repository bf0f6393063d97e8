// A linear layer whose weights are packed once: torch packs them anew at each call.
//
//   float32 on AVX2   kernels of our own (vector_products.h); a row's outputs are the same in any
//                     batch
//   others            oneDNN, as it comes in torch, whose kernels are faster on AVX-512. It
//   compiles
//                     one for each number of rows, which takes a millisecond: batches are cut into
//                     chunks of two dozen sizes, each of which has run before the first request, of
//                     this version or of one before with such a layer.

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
  at::Tensor packed;                 // Pack() makes it.
  int64_t columns = 0;               // Inputs, and zeros behind them.
  bool relu = false;
  bool own = false;                      // Pack() says so: runs on kernels of our own.
  c10::intrusive_ptr<PackedLayer> next;  // On our own, too: takes what this one gives, or null.

  const PackedLayer& last() const { return next == nullptr ? *this : next->last(); }
};

// Whether layers in float32 run on kernels of our own: on AVX2 and FMA, and on AVX-512 where torch
// comes without a oneDNN that is to be used.
bool UsesOwnKernels();

// Whether layers of this type run here: float32 on our own kernels or oneDNN, bfloat16 on oneDNN if
// the processor multiplies bfloat16.
bool CanPack(at::ScalarType type);

// Packs the weights. oneDNN has kernels compiled for the number of threads that torch has on this
// thread. REQUIRES: CanPack(type); all but `packed` and `own` is filled in.
void Pack(PackedLayer* layer);

// Runs a layer and those behind it. x [..., inputs], of any float type; the result [..., outputs]
// is of the layer's. Throws what torch does.
at::Tensor RunLayers(const PackedLayer& layer, const at::Tensor& x);

// Rows of one piece of a batch on oneDNN, and how many are computed for them: what the rest gives
// is dropped.
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
