#include "telemetry/slow_log.h"

#include <gtest/gtest.h>

#include <chrono>
#include <new>
#include <string>
#include <thread>
#include <vector>

namespace embershard {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::nanoseconds;

SlowRequest Named(const std::string& name) {
  SlowRequest request;
  request.request_id = name;
  return request;
}

TEST(SlowLog, KeepsWhatTakesAsLongAsTheThresholdAndDescribesNothingElse) {
  SlowLog log(milliseconds(10));
  int described = 0;
  const auto describe = [&described] { return Named(std::to_string(++described)); };
  log.Offer(milliseconds(10) - nanoseconds(1), describe);
  EXPECT_EQ(described, 0);
  log.Offer(milliseconds(10), describe);
  log.Offer(minutes(1), describe);
  EXPECT_EQ(log.seen(), 2U);
  EXPECT_EQ(log.dropped(), 0U);
  const std::vector<SlowRequest> taken = log.Wait(milliseconds(0));
  ASSERT_EQ(taken.size(), 2U);
  EXPECT_EQ(taken[0].request_id, "1");
  EXPECT_EQ(taken[1].request_id, "2");
  EXPECT_TRUE(log.Wait(milliseconds(0)).empty());
}

TEST(SlowLog, WithoutAThresholdNothingIsSlow) {
  SlowLog log(nanoseconds(0));
  log.Offer(minutes(60), []() -> SlowRequest { throw std::bad_alloc(); });
  EXPECT_EQ(log.seen(), 0U);
  EXPECT_EQ(log.dropped(), 0U);
}

TEST(SlowLog, KeepsTheFirstThatFitAndCountsTheRestAsDropped) {
  SlowLog log(nanoseconds(1));
  int described = 0;
  for (size_t i = 0; i < SlowLog::kCapacity + 5; ++i) {
    log.Offer(nanoseconds(1), [&described] { return Named(std::to_string(described++)); });
  }
  EXPECT_EQ(log.seen(), 261U);
  EXPECT_EQ(log.dropped(), 5U);
  EXPECT_EQ(described, 256);  // Calls without room are not described, so they take no memory.
  const std::vector<SlowRequest> taken = log.Wait(milliseconds(0));
  ASSERT_EQ(taken.size(), 256U);
  EXPECT_EQ(taken.front().request_id, "0");
  EXPECT_EQ(taken.back().request_id, "255");
  log.Offer(nanoseconds(1), [] { return Named("after"); });
  EXPECT_EQ(log.Wait(milliseconds(0)).size(), 1U);
}

TEST(SlowLog, CountsWhatCannotBeDescribedAsDropped) {
  SlowLog log(nanoseconds(1));
  log.Offer(nanoseconds(1), []() -> SlowRequest { throw std::bad_alloc(); });
  EXPECT_EQ(log.seen(), 1U);
  EXPECT_EQ(log.dropped(), 1U);
  EXPECT_TRUE(log.Wait(milliseconds(0)).empty());
}

TEST(SlowLog, WakesWhoWaits) {
  SlowLog log(nanoseconds(1));
  std::thread offers([&log] { log.Offer(nanoseconds(1), [] { return Named("one"); }); });
  const std::vector<SlowRequest> taken = log.Wait(minutes(5));
  offers.join();
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_EQ(taken[0].request_id, "one");
}

TEST(SlowLog, ClosedItGivesWhatIsLeftAndThenNothingAtOnce) {
  SlowLog log(nanoseconds(1));
  std::thread closes([&log] { log.Close(); });
  EXPECT_TRUE(log.Wait(minutes(5)).empty());
  closes.join();
  log.Offer(nanoseconds(1), [] { return Named("late"); });
  EXPECT_EQ(log.Wait(minutes(5)).size(), 1U);
  EXPECT_TRUE(log.Wait(minutes(5)).empty());
}

TEST(SlowLog, ManyThreadsLoseNothingButWhatIsCounted) {
  SlowLog log(nanoseconds(1));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&log] {
      for (int i = 0; i < 1000; ++i) log.Offer(nanoseconds(1), [] { return Named("x"); });
    });
  }
  size_t taken = 0;
  while (log.seen() < 4000) taken += log.Wait(milliseconds(0)).size();
  for (std::thread& thread : threads) thread.join();
  taken += log.Wait(milliseconds(0)).size();
  EXPECT_EQ(log.seen(), 4000U);
  EXPECT_EQ(taken + log.dropped(), 4000U);
}

}  // namespace
}  // namespace embershard
