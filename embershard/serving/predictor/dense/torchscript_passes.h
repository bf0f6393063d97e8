#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>

namespace embershard {

// Uses the kernels of vector_products.h for pairwise feature interaction. Replaces
//
//   index_select(flatten(bmm(x, transpose(x, 1, 2)), 1), 1, pairs)
//     by  pair_products(parts, pairs)
//   flatten(bmm(x, transpose(index_select(y, 0, rows), 1, 2)), 1)
//     by  cross_products(x, y, rows)
//
// `pairs` must be a constant that lists all pairs i < j in order. x is parts[0] or cat(parts, 1). A
// call with an x that the kernels do not support, such as another type, is computed as before. Does
// nothing on processors without such kernels.
void ReplaceProducts(const std::shared_ptr<torch::jit::Graph>& graph);

// Replaces linear layers by packed layers (PackedLayer) if weight and bias are float32 constants:
//
//   linear(x, weight, bias)                                  by  a packed layer
//   bfloat16(linear(float32(bfloat16(x)), weight, bias))     by  a packed layer in bfloat16
//   relu(either)                                             by  the same layer with relu
//   a layer that is the only user of another's output        by  one node for both
//
// The second needs a processor that multiplies bfloat16, torch's oneDNN, and weights that rounding
// to bfloat16 does not change. oneDNN's kernels are compiled for torch's number of threads on this
// thread. Layers of less than 16384 weights gain nothing from oneDNN and are left alone.
//
// The last needs the kernels of vector_products.h (UsesOwnKernels()). These take layers of any
// size, and a row's outputs are the same bits in any batch, which torch does not promise.
//
// `float32`: first replaces float32(bfloat16(linear(float32(bfloat16(x)), weight, bias))) by
// linear(x, weight, bias), for any size, if rounding the weights to bfloat16 does not change them.
void PackLinears(const std::shared_ptr<torch::jit::Graph>& graph, bool float32 = false);

bool IsPackedLinear(const torch::jit::Node* node);

// True for a conversion of the node's first input.
bool IsCastTo(const torch::jit::Node* node, at::ScalarType type);

// Fuses the element-wise epilogue of cross layers in bfloat16 into one pass over memory. Replaces
//
//   gate * float32(layer) + x         by  one operation without intermediate results in memory
//
// if `layer` is the output of a bfloat16 layer made by PackLinears(). A product and its sum may be
// rounded together.
void FuseEpilogues(const std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace embershard
