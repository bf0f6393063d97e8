#include "lookup/bag_sums.h"

#include <set>
#include <string>

#include "base/core_count.h"

namespace embershard {

const BagSumsKernel& BestBagSums() {
#if defined(__x86_64__)
  const std::set<std::string> flags = UsableFlags();
  const auto has = [&flags](const char* flag) { return flags.contains(flag); };
  const bool avx2 = has("avx2") && has("fma") && has("f16c");
  if (avx2 && has("avx512f") && has("avx512bw") && has("avx512vl")) {
    return has("avx512_vnni") ? kVnniBagSums : kAvx512BagSums;
  }
  if (avx2) return kAvx2BagSums;
#endif
  return kScalarBagSums;
}

}  // namespace embershard
