#include "registry/traffic_split.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace embershard {
namespace {

constexpr int kKeys = 10'000;

std::string Key(int user) { return "user-" + std::to_string(user); }

// The users of 0 .. kKeys - 1 whose requests go to the labelled version.
std::vector<int> Taken(const TrafficSplit& split, const char* model) {
  std::vector<int> taken;
  for (int user = 0; user < kKeys; ++user) {
    if (split.Takes(model, Key(user))) taken.push_back(user);
  }
  return taken;
}

TEST(TrafficSplit, AKeyAlwaysGetsTheSameVersion) {
  const TrafficSplit split({.label = "canary", .share = 0.3});
  const TrafficSplit another_server({.label = "canary", .share = 0.3});
  EXPECT_EQ(Taken(split, "ranker"), Taken(split, "ranker"));
  EXPECT_EQ(Taken(split, "ranker"), Taken(another_server, "ranker"));
}

TEST(TrafficSplit, TakesItsShareOfTheKeys) {
  const auto taken = Taken(TrafficSplit({.label = "canary", .share = 0.05}), "ranker");
  EXPECT_NEAR(static_cast<double>(taken.size()), 500, 110);  // Five deviations.
}

// xxhash.xxh3_64_intdigest(b"user-17", seed=xxhash.xxh3_64_intdigest(b"ranker")) / 2**64 of
// Python's xxhash is 0.758628.
TEST(TrafficSplit, HashesTheKeyByXxh3SeededWithTheModelsName) {
  EXPECT_FALSE(TrafficSplit({.label = "canary", .share = 0.758626}).Takes("ranker", "user-17"));
  EXPECT_TRUE(TrafficSplit({.label = "canary", .share = 0.758630}).Takes("ranker", "user-17"));
}

TEST(TrafficSplit, ALargerShareKeepsTheKeysOfASmallerOne) {
  const TrafficSplit larger({.label = "canary", .share = 0.2});
  for (const int user : Taken(TrafficSplit({.label = "canary", .share = 0.1}), "ranker")) {
    ASSERT_TRUE(larger.Takes("ranker", Key(user))) << user;
  }
}

TEST(TrafficSplit, EachModelSplitsTheKeysAnew) {
  const TrafficSplit split({.label = "canary", .share = 0.5});
  const std::vector<int> of_ranker = Taken(split, "ranker");
  int of_both = 0;
  for (const int user : of_ranker) of_both += split.Takes("finder", Key(user)) ? 1 : 0;
  EXPECT_NEAR(of_both, static_cast<double>(of_ranker.size()) / 2, 180);  // Five deviations.
}

TEST(TrafficSplit, TakesItsShareOfRequestsWithoutAKeyFromAllThreads) {
  const TrafficSplit split({.label = "canary", .share = 0.05});
  std::atomic<int> taken = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int request = 0; request < kKeys / 4; ++request) taken += split.Takes("ranker", "");
      });
    }
  }
  EXPECT_NEAR(taken, 500, 110);
}

TEST(TrafficSplit, EachServerDrawsASequenceOfItsOwn) {
  const TrafficSplit one({.label = "canary", .share = 0.5});
  const TrafficSplit other({.label = "canary", .share = 0.5});
  int differences = 0;
  for (int i = 0; i < 256; ++i) {
    differences += one.Takes("ranker", "") != other.Takes("ranker", "") ? 1 : 0;
  }
  EXPECT_GT(differences, 0);
}

TEST(TrafficSplit, NoneAndAllAreShares) {
  const TrafficSplit none({.label = "canary", .share = 0});
  const TrafficSplit all({.label = "canary", .share = 1});
  for (int user = 0; user < kKeys; ++user) {
    ASSERT_FALSE(none.Takes("ranker", Key(user)) || none.Takes("ranker", ""));
    ASSERT_TRUE(all.Takes("ranker", Key(user)) && all.Takes("ranker", ""));
  }
}

}  // namespace
}  // namespace embershard
