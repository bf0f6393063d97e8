#include "base/task_thread.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace embershard {
namespace {

TEST(TaskThread, RunsTheTaskOnceForEachStart) {
  int runs = 0;
  TaskThread thread([&runs] { ++runs; });
  for (int i = 1; i <= 1000; ++i) {
    thread.Start();
    thread.Wait();
    ASSERT_EQ(runs, i);
  }
}

TEST(TaskThread, RunsTheTaskOnAnotherThreadAndAlwaysTheSame) {
  std::vector<std::thread::id> ids;
  TaskThread thread([&ids] { ids.push_back(std::this_thread::get_id()); });
  for (int i = 0; i < 2; ++i) {
    thread.Start();
    thread.Wait();
  }
  EXPECT_EQ(ids[0], ids[1]);
  EXPECT_NE(ids[0], std::this_thread::get_id());
}

TEST(TaskThread, HandsOverWhatTheCallerAndTheTaskWrite) {
  int question = 0;
  int answer = 0;
  TaskThread thread([&] { answer = question * 2; });
  for (question = 1; question <= 100; ++question) {
    thread.Start();
    thread.Wait();
    ASSERT_EQ(answer, question * 2);
  }
}

TEST(TaskThread, WaitReturnsAtOnceWhenNothingWasStarted) {
  TaskThread thread([] { FAIL() << "nobody started it"; });
  thread.Wait();
}

TEST(TaskThread, AStartedTaskIsFinishedBeforeTheThreadIsGone) {
  bool done = false;
  {
    TaskThread thread([&done] { done = true; });
    thread.Start();
  }
  EXPECT_TRUE(done);
}

TEST(TaskThread, SeveralRunAtTheSameTime) {
  // Each task waits for the other: a deadlock if they ran one after the other.
  std::mutex mutex;
  std::condition_variable changed;
  int arrived = 0;
  const auto meet = [&] {
    std::unique_lock lock(mutex);
    ++arrived;
    changed.notify_all();
    changed.wait(lock, [&] { return arrived == 2; });
  };
  TaskThread first(meet);
  TaskThread second(meet);
  first.Start();
  second.Start();
  first.Wait();
  second.Wait();
  EXPECT_EQ(arrived, 2);
}

}  // namespace
}  // namespace embershard
