// Dot products of many short vectors: what a DLRM's features give each other. A batched product of
// matrices computes each pair twice and each vector with itself, and a library's is made for larger
// ones; these are computed once, and written where they are wanted.

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

// Any thread may call them. Both keep some memory for the thread.
struct VectorProducts {
  void (*pairs)(const PairProductsCall& call) = nullptr;
  void (*cross)(const CrossProductsCall& call) = nullptr;
};

// Those of this processor, the widest last. All give the same bits.
std::vector<const VectorProducts*> UsableVectorProducts();

#if defined(__x86_64__)  // REQUIRES: AVX2 and FMA; AVX-512 F.
extern const VectorProducts kAvx2VectorProducts;
extern const VectorProducts kAvx512VectorProducts;
#endif

}  // namespace embershard
