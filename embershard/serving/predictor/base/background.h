// Work that nobody is to notice: it runs in the time that all other threads leave.

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

// A thread of idle scheduling priority, which begins with its first work. Thread-safe.
//
// A lock that it holds may be held for long, since others take its processor away. Work that takes
// locks of threads which serve holds them for moments only. Threads that serve are started
// elsewhere. It must not end while somebody runs something.
class Background {
 public:
  Background() = default;
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // Runs `work` on the thread, behind what others gave before, waits for its end, and gives what it
  // gives. kInternal where it throws, or where no thread can be had: it has not begun then.
  // REQUIRES: not called by `work`.
  Status Run(const std::function<Status()>& work);

 private:
  Mutex turn_;  // Held by the caller whose work runs.
  // Both handed over by the thread's Start() and Wait().
  const std::function<Status()>* work_ = nullptr;
  Status ended_;                                          // What the work gave.
  std::unique_ptr<TaskThread> thread_ GUARDED_BY(turn_);  // Last: it uses the fields above.
};

// Runs `work` in the background; on the calling thread where `background` is null.
Status RunIn(Background* background, const std::function<Status()>& work);

}  // namespace embershard
