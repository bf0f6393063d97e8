#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/core_count.h"

namespace embershard {
namespace {

// A library that counts threads as torch does. A thread takes the process's count when it first
// reads it. Setting a thread's count sets the process's count, too.
std::atomic<int> of_process = 0;
thread_local int of_thread = 0;

int Get() {
  if (of_thread == 0) of_thread = of_process;
  return of_thread;
}

void Set(int threads) {
  of_thread = threads;
  of_process = threads;
}

int OfNewThread() {
  int threads = 0;
  std::thread([&threads] { threads = Get(); }).join();
  return threads;
}

TEST(ThreadCount, IsSetOnThisThreadAlone) {
  of_process = 4;
  int here = 0;
  std::thread([&here] {
    UseThreads(1, Get, Set);
    here = Get();
  }).join();
  EXPECT_EQ(here, 1);
  EXPECT_EQ(OfNewThread(), 4);
}

TEST(ThreadCount, OfNewThreadsStaysWhenManySetTheirsAtOnce) {
  of_process = 4;
  std::atomic<int> wrong = 0;
  for (int round = 0; round < 50; ++round) {
    std::vector<std::thread> threads;
    for (int count : {1, 2, 3, 5, 6, 7, 8, 9}) {
      threads.emplace_back([&wrong, count] {
        UseThreads(count, Get, Set);
        if (Get() != count) ++wrong;
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(OfNewThread(), 4) << "in round " << round;
  }
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace embershard
