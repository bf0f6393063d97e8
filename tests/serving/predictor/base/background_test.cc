#include "base/background.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

namespace embershard {
namespace {

TEST(Background, RunsWorkAtIdlePriorityAndLeavesItsCallersAlone) {
  Background background;
  const int before = sched_getscheduler(0);
  int of_work = -1;
  EXPECT_TRUE(background
                  .Run([&of_work] {
                    of_work = sched_getscheduler(0);
                    return Status();
                  })
                  .ok());
  EXPECT_EQ(of_work, SCHED_IDLE);
  EXPECT_EQ(sched_getscheduler(0), before);
}

TEST(Background, GivesWhatItsWorkGives) {
  Background background;
  EXPECT_EQ(background.Run([] { return NotFound("nothing there"); }).message(), "nothing there");
  EXPECT_TRUE(background.Run([] { return Status(); }).ok());
}

TEST(Background, WhatItsWorkThrowsIsAStatus) {
  Background background;
  const Status thrown =
      background.Run([]() -> Status { throw std::runtime_error("the disk is gone"); });
  EXPECT_EQ(thrown.code(), StatusCode::kInternal);
  EXPECT_EQ(thrown.message(), "the disk is gone");
  const Status full = background.Run([]() -> Status { throw std::bad_alloc(); });
  EXPECT_EQ(full.reason(), StatusReason::kOutOfMemory);
  EXPECT_TRUE(background.Run([] { return Status(); }).ok());
}

TEST(Background, WorkOfManyRunsOneAfterTheOther) {
  Background background;
  int running = 0;  // Needs no lock: Background runs one task at a time.
  int most = 0;
  int ran = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) {
        const Status status = background.Run([&] {
          most = std::max(most, ++running);
          ++ran;
          --running;
          return Status();
        });
        EXPECT_TRUE(status.ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ran, 400);
  EXPECT_EQ(most, 1);
}

TEST(Background, WithoutOneWorkRunsOnTheCallingThread) {
  std::thread::id ran;
  const Status status = RunIn(nullptr, [&ran] {
    ran = std::this_thread::get_id();
    return Status();
  });
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(ran, std::this_thread::get_id());
  EXPECT_EQ(RunIn(nullptr, []() -> Status { throw std::runtime_error("no"); }).message(), "no");
}

}  // namespace
}  // namespace embershard
