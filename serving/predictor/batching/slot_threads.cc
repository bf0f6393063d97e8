#include "batching/slot_threads.h"

#include <utility>

#include "base/long_turns.h"

namespace embershard {

SlotThreads::SlotThreads(size_t threads, std::function<void(size_t thread)> begin)
    : sleepers_(threads) {
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
    if (!RunNext(&lock)) sleepers_.Sleep(thread, &lock);
  }
}

bool SlotThreads::RunNext(std::unique_lock<std::mutex>* lock) {
  for (size_t asked = 0; asked < work_.size(); ++asked) {
    turn_ = (turn_ + 1) % work_.size();
    if (work_[turn_]->RunIfAny(lock)) return true;  // By now work_ may be another.
  }
  return false;
}

}  // namespace embershard
