#include "batching/time_slice.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <thread>

#include "base/background.h"
#include "testing/turn.h"

namespace embershard {
namespace {

using std::chrono::milliseconds;

TEST(TimeSlice, TheThreadAndThoseItStartsHaveThemAndOthersDoNot) {
  const uint64_t before = TurnOfThisThread();
  if (before == 0) GTEST_SKIP() << "needs Linux 6.12 or newer, which knows turns of a thread";
  uint64_t of_thread = 0;
  uint64_t of_started = 0;
  std::thread([&] {
    EXPECT_TRUE(SetTimeSlice(milliseconds(20)));
    of_thread = TurnOfThisThread();
    std::thread([&] { of_started = TurnOfThisThread(); }).join();
  }).join();
  EXPECT_EQ(of_thread, 20'000'000);
  EXPECT_EQ(of_started, of_thread);
  EXPECT_EQ(TurnOfThisThread(), before);
}

TEST(TimeSlice, AThreadOfIdlePriorityKeepsIt) {
  std::thread([] {
    ASSERT_TRUE(SetIdlePriority());
    EXPECT_FALSE(SetTimeSlice(milliseconds(20)));
    EXPECT_EQ(sched_getscheduler(0), SCHED_IDLE);
  }).join();
}

TEST(TimeSlice, NicenessStaysWhatItIs) {
  std::thread([] {
    const int lowered = nice(5);           // nice() changes this thread only.
    (void)SetTimeSlice(milliseconds(20));  // Some systems refuse.
    EXPECT_EQ(nice(0), lowered);
  }).join();
}

}  // namespace
}  // namespace embershard
