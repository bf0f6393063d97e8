// The element-wise epilogue of the cross layers of a TorchScript program in bfloat16, fused into
// one pass over memory.

#ifndef EMBERSHARD_DENSE_TORCHSCRIPT_EPILOGUE_H_
#define EMBERSHARD_DENSE_TORCHSCRIPT_EPILOGUE_H_

#include <torch/csrc/jit/ir/ir.h>

#include <memory>

namespace embershard {

// Replaces, where `layer` is the output of a layer in bfloat16 that PackLinears() has made,
//
//   gate * float32(layer) + x         by  the same, without what lies between in memory
//
// A product and its sum may be rounded together.
void FuseEpilogues(const std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace embershard

#endif  // EMBERSHARD_DENSE_TORCHSCRIPT_EPILOGUE_H_
