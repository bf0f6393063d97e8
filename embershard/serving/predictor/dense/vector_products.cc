#include "dense/vector_products.h"

#include <set>
#include <string>

#include "base/core_count.h"

namespace embershard {

std::vector<const VectorProducts*> UsableVectorProducts() {
  std::vector<const VectorProducts*> usable;
#if defined(__x86_64__)
  const std::set<std::string> flags = UsableFlags();
  if (flags.contains("avx2") && flags.contains("fma")) usable.push_back(&kAvx2VectorProducts);
  if (flags.contains("avx512f")) usable.push_back(&kAvx512VectorProducts);
#endif
  return usable;
}

const VectorProducts* BestVectorProducts() {
  static const std::vector<const VectorProducts*> usable = UsableVectorProducts();
  return usable.empty() ? nullptr : usable.back();
}

}  // namespace embershard
