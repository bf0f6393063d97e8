#include "lookup/bag_sums.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/core_count.h"

namespace embershard {
#if defined(__x86_64__)
namespace {

// Not by __builtin_cpu_supports(): clang 14 does not know the name.
bool HasF16c() {
  unsigned int eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

}  // namespace
#endif

const BagSumsKernel& BestBagSums() {
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasF16c();
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl");
  if (avx2 && avx512 && UsableFlags().contains("avx512f")) return kAvx512BagSums;
  if (avx2) return kAvx2BagSums;
#endif
  return kScalarBagSums;
}

}  // namespace embershard
