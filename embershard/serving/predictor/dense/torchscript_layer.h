// A linear layer whose weights are packed once. torch packs them at each call.
//
//   float32 on AVX2   the kernels of vector_products.h; a row's outputs are the same in any batch
//   others            torch's oneDNN, whose kernels are faster on AVX-512
//
// oneDNN compiles a kernel for each number of rows, which takes a millisecond. Therefore batches
// are cut into pieces of two dozen sizes. Each size runs once before the first request, unless a
// layer of the same shape has already run in this process.

#pragma once

#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>

#include <cstdint>
#include <optional>

namespace embershard {

struct PackedLayer final : torch::CustomClassHolder {
  bool bfloat16() const { return type == at::kBFloat16; }

  at::ScalarType type = at::kFloat;  // Type of inputs, weights and outputs; sums are float32.
  at::Tensor weight;                 // [outputs, inputs]
  std::optional<at::Tensor> bias;    // [outputs]
  at::Tensor packed;                 // Set by Pack().
  int64_t columns = 0;               // Number of inputs, padded with zeros.
  bool relu = false;
  bool own = false;  // Set by Pack(). True if the layer uses the kernels of vector_products.h.
  // The layer that takes this one's outputs, if both use the kernels of vector_products.h, or null.
  c10::intrusive_ptr<PackedLayer> next;

  const PackedLayer& last() const { return next == nullptr ? *this : next->last(); }
};

// True on AVX2 with FMA, and on AVX-512 if torch has no oneDNN or it is disabled.
bool UsesOwnKernels();

// True if layers of this type can be packed: float32 for vector_products.h or oneDNN, and bfloat16
// for oneDNN if the processor multiplies bfloat16.
bool CanPack(at::ScalarType type);

// oneDNN's kernels are compiled for torch's number of threads on this thread. REQUIRES:
// CanPack(type), and all fields except `packed` and `own` are set.
void Pack(PackedLayer* layer);

// x [..., inputs] has any float type; the result [..., outputs] has the layer's. Throws torch's
// exceptions.
at::Tensor RunLayers(const PackedLayer& layer, const at::Tensor& x);

struct LinearPiece {
  int64_t rows = 0;      // Rows of the batch.
  int64_t computed = 0;  // Rows to compute; the results of further rows are dropped.
};

// Returns the first piece of `rows` > 0.
//
//   type       rows          rows of the piece   rows to compute
//   any        at least 512  512                 512
//   float32    257 to 511    256                 256
//   float32    65 to 256     all                 rounded up to a multiple of 16
//   float32    9 to 64       all                 rounded up to a multiple of 8
//   float32    1 to 8        all                 rounded up to a power of two
//   bfloat16   33 to 511     all                 rounded up to a multiple of 32
//   bfloat16   1 to 32       all                 rounded up to a power of two
//
// Each further piece reads all weights again, which takes as long as one or two dozen rows.
LinearPiece FirstPiece(int64_t rows, bool bfloat16);

}  // namespace embershard
