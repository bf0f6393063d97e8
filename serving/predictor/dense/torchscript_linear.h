// Linear layers of a TorchScript program, on oneDNN.
//
// torch itself calls MKL for them, which is slow on some processors, and packs weights anew at each
// call. oneDNN, as it comes in torch, gets weights that are packed once. It compiles a kernel for
// each number of rows, which takes a millisecond: batches are cut into pieces of two dozen sizes,
// each of which has run before the first request, of this version or of one before with such a
// layer.

#ifndef EMBERSHARD_DENSE_TORCHSCRIPT_LINEAR_H_
#define EMBERSHARD_DENSE_TORCHSCRIPT_LINEAR_H_

#include <torch/csrc/jit/ir/ir.h>

#include <cstdint>
#include <memory>

namespace embershard {

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

// Replaces, in a frozen graph that has not run yet, where weight and bias are float32 constants,
//
//   linear(x, weight, bias)                                  by  the same, packed
//   bfloat16(linear(float32(bfloat16(x)), weight, bias))     by  the same in bfloat16, packed
//   relu(either)                                             by  the same, with relu
//
// The second asks for a processor with bfloat16 and weights that are bfloat16 by value. Layers of
// less than 16384 weights gain nothing and stay, as does all where torch has no oneDNN. Kernels are
// compiled for the number of threads that torch has on this thread.
void PackLinears(const std::shared_ptr<torch::jit::Graph>& graph);

// Whether a node is such a layer.
bool IsPackedLinear(const torch::jit::Node* node);

// Whether a node gives its first input in this type.
bool IsCastTo(const torch::jit::Node* node, at::ScalarType type);

}  // namespace embershard

#endif  // EMBERSHARD_DENSE_TORCHSCRIPT_LINEAR_H_
