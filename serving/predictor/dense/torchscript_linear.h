// Linear layers of a TorchScript program become packed ones.

#ifndef EMBERSHARD_DENSE_TORCHSCRIPT_LINEAR_H_
#define EMBERSHARD_DENSE_TORCHSCRIPT_LINEAR_H_

#include <torch/csrc/jit/ir/ir.h>

#include <memory>

namespace embershard {

// Replaces, in a frozen graph that has not run yet, where weight and bias are float32 constants,
//
//   linear(x, weight, bias)                                  by  the same, packed
//   bfloat16(linear(float32(bfloat16(x)), weight, bias))     by  the same in bfloat16, packed
//   relu(either)                                             by  the same, with relu
//
// The second asks for a processor with bfloat16 and weights that are bfloat16 by value. Layers of
// less than 16384 weights gain nothing and stay, as does all where torch has no oneDNN. Kernels are
// compiled for the number of threads that torch has on this thread.
//
// `float32`: float32(bfloat16(linear(float32(bfloat16(x)), weight, bias))) becomes
// linear(x, weight, bias) first, of any size, if its weights are bfloat16 by value.
void PackLinears(const std::shared_ptr<torch::jit::Graph>& graph, bool float32 = false);

// Whether a node is such a layer.
bool IsPackedLinear(const torch::jit::Node* node);

// Whether a node gives its first input in this type.
bool IsCastTo(const torch::jit::Node* node, at::ScalarType type);

}  // namespace embershard

#endif  // EMBERSHARD_DENSE_TORCHSCRIPT_LINEAR_H_
