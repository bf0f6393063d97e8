// Pairwise feature interaction in a TorchScript program, by kernels of our own.

#ifndef EMBERSHARD_DENSE_TORCHSCRIPT_PRODUCTS_H_
#define EMBERSHARD_DENSE_TORCHSCRIPT_PRODUCTS_H_

#include <torch/csrc/jit/ir/ir.h>

#include <memory>

namespace embershard {

// Replaces, in a frozen graph that has not run yet,
//
//   index_select(flatten(bmm(x, transpose(x, 1, 2)), 1), 1, pairs)     by  pair_products(x, pairs)
//   flatten(bmm(x, transpose(index_select(y, 0, rows), 1, 2)), 1)      by  cross_products(x, y,
//   rows)
//
// where `pairs` is a constant that lists all i < j in order. What x turns out to be at a call that
// the kernels are not made for, as other types, is computed as before. Leaves all as it is on
// processors that have none.
void ReplaceProducts(const std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace embershard

#endif  // EMBERSHARD_DENSE_TORCHSCRIPT_PRODUCTS_H_
