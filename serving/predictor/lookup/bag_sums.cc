#include "lookup/bag_sums.h"

namespace embershard {

const BagSumsKernel& BestBagSums() {
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl");
  if (avx2 && avx512) return kAvx512BagSums;
  if (avx2) return kAvx2BagSums;
#endif
  return kScalarBagSums;
}

}  // namespace embershard
