// Dot products for pairwise feature interaction and linear layers.
//
// A batched product of matrices computes each pair twice, and each vector with itself, and is made
// for larger matrices. These functions compute each product once, directly at its place in the
// output.

#pragma once

// Includes no header with code, because files compiled for newer processors include this.
#include <cstddef>
#include <cstdint>
#include <vector>

namespace embershard {

// Products of all pairs of an example's vectors. Values are float32. A product is summed in the
// order of the vectors' values, and rounded after every multiply-add.
struct PairProductsCall {
  const float* vectors = nullptr;  // [examples, count, dim]
  size_t examples = 0;
  size_t count = 0;
  size_t dim = 0;
  // [examples, count * (count - 1) / 2], in the order (0, 1), (0, 2), ..., (1, 2), ...
  float* products = nullptr;
};

// Products of each of an example's vectors with each vector of one row of `others`. Rounded like
// pair products.
struct CrossProductsCall {
  const float* vectors = nullptr;  // [examples, count, dim]
  size_t examples = 0;
  size_t count = 0;
  size_t dim = 0;
  const float* others = nullptr;  // [rows, other_count, dim]
  // [examples], the row of each example in `others`. Fastest if equal rows are adjacent.
  const int64_t* row_of = nullptr;
  size_t other_count = 0;
  float* products = nullptr;  // [examples, count, other_count]
};

// The outputs of a linear layer may be split among calls at multiples of this.
constexpr size_t kPackedOutputs = 64;

// Calls are fastest if their number of vectors is a multiple of this.
constexpr size_t kTileRows = 6;

// A linear layer. Products are summed like pair products, then the bias is added. relu(NaN) is NaN.
struct LinearCall {
  const float* vectors = nullptr;  // [count, dim]
  size_t count = 0;
  size_t dim = 0;
  const float* packed = nullptr;  // Weights from pack(). Those of output i begin at i * dim.
  const float* bias = nullptr;    // [outputs], or null.
  size_t outputs = 0;
  bool relu = false;
  float* products = nullptr;  // [count, stride]. Only the first `outputs` columns are written.
  size_t stride = 0;
};

// Thread-safe functions. The first two keep a buffer for each thread.
struct VectorProducts {
  void (*pairs)(const PairProductsCall& call) = nullptr;
  void (*cross)(const CrossProductsCall& call) = nullptr;

  // Writes weights [outputs, dim] in the layout that linear() reads. `packed` has dim floats for
  // each output, with the number of outputs rounded up to a multiple of 16.
  void (*pack)(const float* weights, size_t outputs, size_t dim, float* packed) = nullptr;
  void (*linear)(const LinearCall& call) = nullptr;
};

// Those with the widest vectors come last. All return the same bits.
std::vector<const VectorProducts*> UsableVectorProducts();

const VectorProducts* BestVectorProducts();

#if defined(__x86_64__)
extern const VectorProducts kAvx2VectorProducts;    // REQUIRES: AVX2 and FMA.
extern const VectorProducts kAvx512VectorProducts;  // REQUIRES: AVX-512 F.
#endif

}  // namespace embershard
