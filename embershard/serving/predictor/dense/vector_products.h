// Dot products: pairwise feature interaction, and linear layers.
//
// A batched product of matrices computes each pair twice and each vector with itself, and a
// library's is made for larger ones; these are computed once, and written where they are wanted.

#pragma once

// Nothing with code in it: a file that is compiled for newer processors includes this.
#include <cstddef>
#include <cstdint>
#include <vector>

namespace embershard {

// Some examples, each with vectors of one width, float32, concatenated. Each product is
// rounded after every multiply-add, in the order of the vectors' values.
struct PairProductsCall {
  const float* vectors = nullptr;  // [examples, count, dim]
  size_t examples = 0;
  size_t count = 0;
  size_t dim = 0;
  float* products =
      nullptr;  // [examples, count * (count - 1) / 2]: (0, 1), (0, 2), ..., (1, 2), ...
};

struct CrossProductsCall {
  const float* vectors = nullptr;  // [examples, count, dim]
  size_t examples = 0;
  size_t count = 0;
  size_t dim = 0;
  const float* others = nullptr;  // [rows, other_count, dim]
  const int64_t* row_of =
      nullptr;  // [examples], into `others`; best where equal ones are neighbours.
  size_t other_count = 0;
  float* products = nullptr;  // [examples, count, other_count]
};

// Outputs of a linear layer may be divided at multiples of it.
constexpr size_t kPackedOutputs = 64;

// A call with a multiple of so many vectors is fastest.
constexpr size_t kTileRows = 6;

// A linear layer. Products are added as above, then the bias. relu(NaN) is NaN.
struct LinearCall {
  const float* vectors = nullptr;  // [count, dim]
  size_t count = 0;
  size_t dim = 0;
  const float* packed = nullptr;  // Weights, of pack(); of output i from i * dim on.
  const float* bias = nullptr;    // [outputs], or null.
  size_t outputs = 0;
  bool relu = false;
  float* products = nullptr;  // [count, stride], of which `outputs` columns are written.
  size_t stride = 0;
};

// Any thread may call them. The first two keep some memory for the thread.
struct VectorProducts {
  void (*pairs)(const PairProductsCall& call) = nullptr;
  void (*cross)(const CrossProductsCall& call) = nullptr;

  // Writes weights [outputs, dim] as linear() reads them: outputs rounded up to a multiple of 16,
  // times dim.
  void (*pack)(const float* weights, size_t outputs, size_t dim, float* packed) = nullptr;
  void (*linear)(const LinearCall& call) = nullptr;
};

// Those of this processor, the widest last. All give the same bits.
std::vector<const VectorProducts*> UsableVectorProducts();

// The widest, or null.
const VectorProducts* BestVectorProducts();

#if defined(__x86_64__)  // REQUIRES: AVX2 and FMA; AVX-512 F.
extern const VectorProducts kAvx2VectorProducts;
extern const VectorProducts kAvx512VectorProducts;
#endif

}  // namespace embershard
