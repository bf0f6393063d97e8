#include "base/thread_count.h"

#include <thread>

#include "base/mutex.h"

namespace embershard {

void UseThreads(int threads, int (*get)(), void (*set)(int)) {
  if (get() == threads) return;
  static Mutex mutex;
  const MutexLock lock(mutex);
  // Asked on a new thread: this one may have begun while another held the lock, with the
  // count that the other had set.
  int of_new_threads = 0;
  std::thread([&of_new_threads, get] { of_new_threads = get(); }).join();
  set(threads);
  std::thread([of_new_threads, set] { set(of_new_threads); }).join();
}

}  // namespace embershard
