// What is changed in the graph of a TorchScript program, frozen, before it has run.

#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>

namespace embershard {

// Pairwise feature interaction by kernels of our own. Replaces
//
//   index_select(flatten(bmm(x, transpose(x, 1, 2)), 1), 1, pairs)     by  pair_products(parts,
//   pairs)
//   flatten(bmm(x, transpose(index_select(y, 0, rows), 1, 2)), 1)      by  cross_products(x, y,
//   rows)
//
// where `pairs` is a constant that lists all i < j in order, and x is parts[0] or cat(parts, 1).
// What x turns out to be at a call that the kernels are not made for, as other types, is computed
// as before. Leaves all as it is on processors that have none.
void ReplaceProducts(const std::shared_ptr<torch::jit::Graph>& graph);

// Linear layers become packed ones. Replaces, where weight and bias are float32 constants,
//
//   linear(x, weight, bias)                                  by  the same, packed
//   bfloat16(linear(float32(bfloat16(x)), weight, bias))     by  the same in bfloat16, packed
//   relu(either)                                             by  the same, with relu
//   one of another that nobody else takes, on our kernels    by  one node for both
//
// The second asks for a processor with bfloat16, torch's oneDNN and weights that are bfloat16 by
// value. oneDNN's kernels are compiled for the number of threads that torch has on this thread.
// On oneDNN, layers of less than 16384 weights gain nothing and stay as they are. Our own kernels
// (UsesOwnKernels()) take layers of any size: a row's outputs are the same bits in any batch, which
// torch's do not promise.
//
// `float32`: float32(bfloat16(linear(float32(bfloat16(x)), weight, bias))) becomes
// linear(x, weight, bias) first, of any size, if its weights are bfloat16 by value.
void PackLinears(const std::shared_ptr<torch::jit::Graph>& graph, bool float32 = false);

// Whether a node is such a layer.
bool IsPackedLinear(const torch::jit::Node* node);

// Whether a node gives its first input in this type.
bool IsCastTo(const torch::jit::Node* node, at::ScalarType type);

// Fuses the element-wise epilogue of cross layers in bfloat16 into one pass over memory.
// Replaces, where `layer` is the output of a layer in bfloat16 that PackLinears() has made,
//
//   gate * float32(layer) + x         by  the same, without what lies between in memory
//
// A product and its sum may be rounded together.
void FuseEpilogues(const std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace embershard
