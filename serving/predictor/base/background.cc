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
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Status Background::Run(const std::function<Status()>& work) {
  const std::lock_guard turn(turn_);
  try {
    if (!thread_.joinable()) thread_ = std::thread([this] { Loop(); });
  } catch (const std::exception& error) {
    return Internal(std::string("cannot start a thread: ") + error.what());
  }
  std::unique_lock lock(mutex_);
  work_ = &work;
  changed_.notify_all();
  changed_.wait(lock, [this] { return work_ == nullptr; });
  return std::move(ended_);
}

void Background::Loop() {
  (void)GiveWayToOthers();  // Where it cannot, the work is done all the same.
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return work_ != nullptr || stopping_; });
    if (work_ == nullptr) return;
    const std::function<Status()>& work = *work_;
    lock.unlock();
    Status ended = RunGuarded(work);
    lock.lock();
    ended_ = std::move(ended);
    work_ = nullptr;
    changed_.notify_all();
  }
}

Status RunIn(Background* background, const std::function<Status()>& work) {
  return background != nullptr ? background->Run(work) : RunGuarded(work);
}

}  // namespace embershard
