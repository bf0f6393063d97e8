// Threads that wait for work.

#ifndef EMBERSHARD_BATCHING_SLEEPERS_H_
#define EMBERSHARD_BATCHING_SLEEPERS_H_

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <vector>

namespace embershard {

// Wakes the thread that fell asleep last, whose memory may still be in the processor's caches, and
// no other before that one has looked around: what comes meanwhile it will see. All is guarded by
// the mutex that Sleep() gives back meanwhile.
class Sleepers {
 public:
  // REQUIRES: `threads` are numbered from 0.
  explicit Sleepers(size_t threads) : wakers_(threads) { asleep_.reserve(threads); }

  // Returns once the thread has been woken, with the mutex held again.
  void Sleep(size_t thread, std::unique_lock<std::mutex>* lock) {
    asleep_.push_back(thread);
    wakers_[thread].wait(*lock, [&] { return !std::ranges::count(asleep_, thread); });
    one_wakes_ = false;
  }

  void WakeOne() {
    if (one_wakes_ || asleep_.empty()) return;
    one_wakes_ = true;
    const size_t last = asleep_.back();
    asleep_.pop_back();
    wakers_[last].notify_one();
  }

  void WakeAll() {
    asleep_.clear();
    for (std::condition_variable& waker : wakers_) waker.notify_one();
  }

 private:
  std::vector<size_t> asleep_;                   // Who fell asleep last comes last.
  std::vector<std::condition_variable> wakers_;  // By thread: signalled when it has left asleep_.
  bool one_wakes_ = false;
};

}  // namespace embershard

#endif  // EMBERSHARD_BATCHING_SLEEPERS_H_
