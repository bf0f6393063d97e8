#include "batching/slot_threads.h"

#include <algorithm>
#include <utility>

#include "base/long_turns.h"

namespace embershard {

SlotThreads::SlotThreads(size_t threads, std::function<void(size_t thread)> begin)
    : sleepers_(threads), awake_since_(threads, Clock::time_point::max()) {
  threads_.reserve(threads);
  try {
    while (threads_.size() < threads) {
      threads_.emplace_back([this, begin, number = threads_.size()] {
        if (begin) begin(number);
        (void)TakeLongTurns(kTurn);  // Where it cannot, others may wait for it.
        Loop(number);
      });
    }
  } catch (...) {
    Stop();
    throw;
  }
}

SlotThreads::~SlotThreads() { Stop(); }

void SlotThreads::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    sleepers_.WakeAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

void SlotThreads::Loop(size_t thread) {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    awake_since_[thread] = Clock::now();
    if (RunNext(&lock)) continue;
    awake_since_[thread] = Clock::time_point::max();
    sleepers_.Sleep(thread, &lock);
  }
}

void SlotThreads::WakeForOthers(const SlotWork* own) {
  const auto has_some = [own](const SlotWork* work) { return work != own && work->CanRun(); };
  if (std::ranges::any_of(work_, has_some)) sleepers_.WakeOne();
}

bool SlotThreads::is_stuck(Clock::duration longest) const {
  const Clock::time_point since = Clock::now() - longest;
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(awake_since_, [since](auto awake) { return awake <= since; });
}

bool SlotThreads::RunNext(std::unique_lock<std::mutex>* lock) {
  for (size_t asked = 0; asked < work_.size(); ++asked) {
    turn_ = (turn_ + 1) % work_.size();
    if (work_[turn_]->RunIfAny(lock)) return true;  // By now work_ may be another.
  }
  return false;
}

}  // namespace embershard
