#include "batching/sleepers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "testing/wait_for.h"

namespace embershard {
namespace {

// Threads that sleep once each, in the order of their numbers, and note that they were woken.
class Threads {
 public:
  explicit Threads(size_t number) : sleepers_(number) {
    for (size_t thread = 0; thread < number; ++thread) {
      threads_.emplace_back([this, thread] {
        std::unique_lock lock(mutex_);
        ++asleep_;
        sleepers_.Sleep(thread, &lock);
        woken_.push_back(thread);
      });
      EXPECT_TRUE(WaitFor([&] { return asleep_ == static_cast<int>(thread) + 1; }));
    }
  }
  ~Threads() {
    WakeAll();
    for (std::thread& thread : threads_) thread.join();
  }

  // So often, before any of them can go on.
  void WakeOne(int times) {
    const std::lock_guard lock(mutex_);
    for (int i = 0; i < times; ++i) sleepers_.WakeOne();
  }
  void WakeAll() {
    const std::lock_guard lock(mutex_);
    sleepers_.WakeAll();
  }
  void WaitUntilWoken(size_t number) {
    EXPECT_TRUE(WaitFor([&] { return woken().size() >= number; }));
  }
  std::vector<size_t> woken() {
    const std::lock_guard lock(mutex_);
    return woken_;
  }

 private:
  std::mutex mutex_;
  Sleepers sleepers_;            // Guarded by mutex_.
  std::vector<size_t> woken_;    // Guarded by mutex_.
  std::atomic<int> asleep_ = 0;  // Or about to be, with the mutex held.
  std::vector<std::thread> threads_;
};

TEST(Sleepers, WhoFellAsleepLastIsWokenFirst) {
  Threads threads(3);
  for (size_t number = 1; number <= 3; ++number) {
    threads.WakeOne(1);
    threads.WaitUntilWoken(number);
  }
  EXPECT_EQ(threads.woken(), (std::vector<size_t>{2, 1, 0}));
}

TEST(Sleepers, NoOtherIsWokenBeforeThatOneHasLookedAround) {
  Threads threads(3);
  threads.WakeOne(3);
  threads.WaitUntilWoken(1);
  threads.WakeOne(1);
  threads.WaitUntilWoken(2);
  EXPECT_EQ(threads.woken(), (std::vector<size_t>{2, 1}));
}

TEST(Sleepers, AllAreWokenTogether) {
  Threads threads(4);
  threads.WakeOne(1);
  threads.WakeAll();
  threads.WaitUntilWoken(4);
}

TEST(Sleepers, WakingNobodyIsNotRemembered) {
  std::mutex mutex;
  Sleepers sleepers(1);
  sleepers.WakeOne();
  std::atomic<bool> woken = false;
  std::atomic<bool> begun = false;
  std::thread thread([&] {
    std::unique_lock lock(mutex);
    begun = true;
    sleepers.Sleep(0, &lock);
    woken = true;
  });
  EXPECT_TRUE(WaitFor([&] { return begun.load(); }));
  {
    const std::lock_guard lock(mutex);
    EXPECT_FALSE(woken);
    sleepers.WakeOne();
  }
  thread.join();
  EXPECT_TRUE(woken);
}

}  // namespace
}  // namespace embershard
