#include "base/background.h"

#include <sched.h>

#include <exception>
#include <new>
#include <string>
#include <utility>

#include "base/out_of_memory.h"

namespace embershard {
namespace {

Status RunGuarded(const std::function<Status()>& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  } catch (const std::exception& error) {
    return Internal(error.what());
  }
}

}  // namespace

bool GiveWayToOthers(pid_t thread) {
#ifdef SCHED_IDLE
  const sched_param none = {};
  return sched_setscheduler(thread, SCHED_IDLE, &none) == 0;  // 0: this thread, not the process.
#else
  (void)thread;
  return false;
#endif
}

Background::~Background() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

Status Background::Run(const std::function<Status()>& work) {
  const MutexLock turn(turn_);
  try {
    if (!thread_.joinable()) thread_ = std::thread([this] { Loop(); });
  } catch (const std::exception& error) {
    return Internal(std::string("cannot start a thread: ") + error.what());
  }
  const MutexLock lock(mutex_);
  work_ = &work;
  changed_.NotifyAll();
  while (work_ != nullptr) changed_.Wait(mutex_);
  return std::move(ended_);
}

void Background::Loop() {
  (void)GiveWayToOthers();  // Where it cannot, the work is done all the same.
  MutexLock lock(mutex_);
  while (true) {
    while (work_ == nullptr && !stopping_) changed_.Wait(mutex_);
    if (work_ == nullptr) return;
    const std::function<Status()>& work = *work_;
    lock.Unlock();
    Status ended = RunGuarded(work);
    lock.Lock();
    ended_ = std::move(ended);
    work_ = nullptr;
    changed_.NotifyAll();
  }
}

Status RunIn(Background* background, const std::function<Status()>& work) {
  return background != nullptr ? background->Run(work) : RunGuarded(work);
}

}  // namespace embershard
