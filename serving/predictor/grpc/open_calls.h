// The calls that a service has taken and not ended.

#ifndef EMBERSHARD_GRPC_OPEN_CALLS_H_
#define EMBERSHARD_GRPC_OPEN_CALLS_H_

#include <condition_variable>
#include <cstddef>
#include <mutex>

#include "base/clock.h"

namespace embershard {

// Thread-safe.
class OpenCalls {
 public:
  // Counts a call, unless new ones are refused. If it does, Leave() must follow.
  bool Enter() {
    const std::lock_guard lock(mutex_);
    if (refusing_) return false;
    ++open_;
    return true;
  }

  void Leave() {
    const std::lock_guard lock(mutex_);
    if (--open_ == 0) idle_.notify_all();
  }

  // Enter() counts no call from now on.
  void RefuseNew() {
    const std::lock_guard lock(mutex_);
    refusing_ = true;
  }

  bool refuses() {
    const std::lock_guard lock(mutex_);
    return refusing_;
  }

  // Returns when no call is open, or at `deadline`.
  void WaitUntilIdle(Clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    idle_.wait_until(lock, deadline, [this] { return open_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable idle_;  // Signalled when open_ becomes 0.
  size_t open_ = 0;               // Guarded by mutex_.
  bool refusing_ = false;         // Guarded by mutex_.
};

}  // namespace embershard

#endif  // EMBERSHARD_GRPC_OPEN_CALLS_H_
