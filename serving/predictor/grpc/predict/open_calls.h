// The calls that a service has taken and not ended.

#pragma once

#include <cstddef>

#include "base/clock.h"
#include "base/mutex.h"

namespace embershard::rpc {

// Thread-safe.
class OpenCalls {
 public:
  // Counts a call, unless new ones are refused. If it does, Leave() must follow.
  bool Enter() {
    MutexLock lock(mutex_);
    if (refusing_) return false;
    ++open_;
    return true;
  }

  void Leave() {
    MutexLock lock(mutex_);
    if (--open_ == 0) idle_.NotifyAll();
  }

  // Enter() counts no call from now on.
  void RefuseNew() {
    MutexLock lock(mutex_);
    refusing_ = true;
  }

  bool refuses() {
    MutexLock lock(mutex_);
    return refusing_;
  }

  // Returns when no call is open, or at `deadline`.
  void WaitUntilIdle(Clock::time_point deadline) {
    MutexLock lock(mutex_);
    while (open_ > 0 && idle_.WaitUntil(mutex_, deadline)) {
    }
  }

 private:
  Mutex mutex_;
  CondVar idle_;  // Signalled when open_ becomes 0.
  size_t open_ GUARDED_BY(mutex_) = 0;
  bool refusing_ GUARDED_BY(mutex_) = false;
};

}  // namespace embershard::rpc
