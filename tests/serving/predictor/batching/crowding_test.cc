#include "batching/crowding.h"

#include <gtest/gtest.h>

namespace embershard {
namespace {

using std::chrono::microseconds;

// A batch that took a millisecond, of which it ran so long.
void Learn(Crowding* crowding, int64_t ran, int64_t sleeps = 0) {
  crowding->Learn({.now = Clock::time_point(microseconds(5000)),
                   .processor = microseconds(700),
                   .sleeps = 3},
                  {.now = Clock::time_point(microseconds(6000)),
                   .processor = microseconds(700 + ran),
                   .sleeps = 3 + sleeps});
}

TEST(Crowding, IsAnEighthOfTheTimeSpentWaiting) {
  for (const auto& [ran, crowded] : {std::pair(1000, false), {885, false}, {865, true}, {0, true}}) {
    Crowding crowding;
    for (int i = 0; i < 100; ++i) Learn(&crowding, ran);
    EXPECT_EQ(crowding.is_crowded(), crowded) << ran;
  }
}

TEST(Crowding, TakesMoreThanAnInterruption) {
  Crowding crowding;
  EXPECT_FALSE(crowding.is_crowded());
  Learn(&crowding, 850);
  EXPECT_FALSE(crowding.is_crowded());
  Learn(&crowding, 850);
  EXPECT_TRUE(crowding.is_crowded());
}

TEST(Crowding, ABatchWhoseThreadSleptSaysNothing) {
  Crowding crowding;
  for (int i = 0; i < 100; ++i) Learn(&crowding, 0, /*sleeps=*/1);
  EXPECT_FALSE(crowding.is_crowded());
}

TEST(Crowding, EndsSomeBatchesAfterTheWaiting) {
  Crowding crowding;
  for (int i = 0; i < 100; ++i) Learn(&crowding, 500);
  int batches = 0;
  while (crowding.is_crowded()) {
    Learn(&crowding, 1000);
    ASSERT_LT(++batches, 30);
  }
  EXPECT_GT(batches, 5);
}

TEST(Crowding, AClockThatRunsAheadOfTheOtherIsNoGain) {
  Crowding crowding;
  for (int i = 0; i < 100; ++i) Learn(&crowding, 1100);
  for (int i = 0; i < 10; ++i) Learn(&crowding, 0);
  EXPECT_TRUE(crowding.is_crowded());
}

}  // namespace
}  // namespace embershard
