#include "base/background.h"

#include <sched.h>

#include <exception>
#include <utility>

namespace embershard {

bool SetIdlePriority(pid_t thread) {
#ifdef SCHED_IDLE
  const sched_param none = {};
  return sched_setscheduler(thread, SCHED_IDLE, &none) == 0;  // 0 means the calling thread.
#else
  (void)thread;
  return false;
#endif
}

Status Background::Run(const std::function<Status()>& work) {
  const MutexLock turn(turn_);
  try {
    if (thread_ == nullptr) {
      thread_ = std::make_unique<TaskThread>([this] {
        (void)SetIdlePriority();  // Optional: the work is done without it, too.
        ended_ = Guarded("", *work_);
      });
    }
  } catch (const std::exception& error) {
    return Internal("cannot start a thread: ", error.what());
  }
  work_ = &work;
  thread_->Start();
  thread_->Wait();
  return std::move(ended_);
}

Status RunIn(Background* background, const std::function<Status()>& work) {
  return background != nullptr ? background->Run(work) : Guarded("", work);
}

}  // namespace embershard
