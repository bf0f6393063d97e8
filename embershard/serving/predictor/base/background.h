#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>

#include "base/mutex.h"
#include "base/status.h"
#include "base/task_thread.h"

namespace embershard {

// Gives a thread, and those that it starts later, idle scheduling priority (SCHED_IDLE), which also
// applies to its disk reads. Without privileges this cannot be undone. Returns false if the system
// does not support it. `thread`: a thread of this process (gettid); 0: the calling thread.
bool SetIdlePriority(pid_t thread = 0);

// A thread of idle scheduling priority, started by the first Run(). Thread-safe. Threads that serve
// take its processor away, so its work must hold locks of theirs only briefly. Must not be
// destroyed while work runs.
class Background {
 public:
  Background() = default;
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // Runs `work` after earlier work, and returns its Status. Returns kInternal if it throws or if no
  // thread can be started. REQUIRES: not called by `work`.
  Status Run(const std::function<Status()>& work);

 private:
  Mutex turn_;  // Held by the caller whose work runs.
  // Start() and Wait() of the thread synchronize both fields.
  const std::function<Status()>* work_ = nullptr;
  Status ended_;                                          // Result of the work.
  std::unique_ptr<TaskThread> thread_ GUARDED_BY(turn_);  // Last: it uses the fields above.
};

// Runs `work` in the background, or on the calling thread if `background` is null.
Status RunIn(Background* background, const std::function<Status()>& work);

}  // namespace embershard
