#include "base/thread_usage.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace embershard {
namespace {

using std::chrono::milliseconds;

TEST(ThreadUsage, GrowsWithWhatTheThreadRuns) {
  const ThreadUsage before = UsageOfThread();
  ThreadUsage after = before;
  while (after.processor - before.processor < milliseconds(5)) after = UsageOfThread();
  EXPECT_GE(after.now - before.now, milliseconds(5));
}

TEST(ThreadUsage, CountsSleeps) {
  const ThreadUsage before = UsageOfThread();
  std::this_thread::sleep_for(milliseconds(20));
  const ThreadUsage after = UsageOfThread();
  EXPECT_GT(after.sleeps, before.sleeps);
  EXPECT_GE(after.now - before.now, milliseconds(20));
  EXPECT_LT(after.processor - before.processor, milliseconds(20));
}

TEST(ThreadUsage, IsOfTheCallingThreadAlone) {
  std::chrono::nanoseconds others{0};
  std::thread([&others] {
    while (others < milliseconds(20)) others = UsageOfThread().processor;
  }).join();
  ThreadUsage of_new;
  std::thread([&of_new] { of_new = UsageOfThread(); }).join();
  EXPECT_LT(of_new.processor, others);
}

}  // namespace
}  // namespace embershard
