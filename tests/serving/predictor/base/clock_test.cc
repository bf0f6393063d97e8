#include "base/clock.h"

#include <gtest/gtest.h>

#include <ctime>

namespace embershard {
namespace {

using std::chrono::hours;
using std::chrono::nanoseconds;

TEST(MicrosecondsBetween, CountsWholeMicroseconds) {
  const Clock::time_point from{nanoseconds(500)};
  EXPECT_EQ(MicrosecondsBetween(from, from + nanoseconds(2999)), 2U);
}

TEST(MicrosecondsBetween, IsZeroWhenTheEndComesFirst) {
  const Clock::time_point from{hours(1)};
  EXPECT_EQ(MicrosecondsBetween(from, Clock::time_point{}), 0U);
}

TEST(MicrosecondsBetween, StaysAtTheLargestNumberInsteadOfStartingOver) {
  const Clock::time_point from{};
  EXPECT_EQ(MicrosecondsBetween(from, from + hours(2)), 4294967295U);
}

TEST(UnixSeconds, IsTheTimeOfDay) {
  const auto before = static_cast<double>(std::time(nullptr));
  const double seconds = UnixSeconds();
  EXPECT_GE(seconds, before);
  EXPECT_LT(seconds, static_cast<double>(std::time(nullptr)) + 1.1);  // time() lags by a tick.
}

}  // namespace
}  // namespace embershard
