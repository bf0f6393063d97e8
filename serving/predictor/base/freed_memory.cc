#include "base/freed_memory.h"

#include <malloc.h>

#include <cstdlib>
#include <limits>

namespace embershard {
namespace {

[[maybe_unused]] constexpr int kMost = std::numeric_limits<int>::max();

}  // namespace

void KeepFreedMemory() {
#ifdef __GLIBC__
  if (std::getenv("MALLOC_MMAP_THRESHOLD_") == nullptr) mallopt(M_MMAP_THRESHOLD, kMost);
  if (std::getenv("MALLOC_TRIM_THRESHOLD_") == nullptr) mallopt(M_TRIM_THRESHOLD, kMost);
#endif
}

void GiveThreadsOwnMemory() {
#ifdef __GLIBC__
  if (std::getenv("MALLOC_ARENA_MAX") == nullptr) mallopt(M_ARENA_MAX, kMost);
#endif
}

}  // namespace embershard
