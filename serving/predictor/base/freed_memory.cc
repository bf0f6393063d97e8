#include "base/freed_memory.h"

#include <malloc.h>

#include <cstdlib>
#include <limits>

namespace embershard {

void KeepFreedMemory() {
#ifdef __GLIBC__
  constexpr int kMost = std::numeric_limits<int>::max();
  if (std::getenv("MALLOC_MMAP_THRESHOLD_") == nullptr) mallopt(M_MMAP_THRESHOLD, kMost);
  if (std::getenv("MALLOC_TRIM_THRESHOLD_") == nullptr) mallopt(M_TRIM_THRESHOLD, kMost);
#endif
}

}  // namespace embershard
