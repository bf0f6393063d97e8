#include "engine/fork_count.h"

#include <pthread.h>

#include <atomic>

namespace embershard {

uint64_t ForkCount() {
  static std::atomic<uint64_t> forks = 0;
  [[maybe_unused]] static const int registered =
      pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  return forks.load(std::memory_order_relaxed);
}

}  // namespace embershard
