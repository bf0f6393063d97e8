#include "base/read_control.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace embershard {
namespace {

using std::chrono::seconds;

TEST(Pace, LetsSoManyBytesASecondThrough) {
  Pace pace(100);
  const Clock::time_point start = Clock::now();
  EXPECT_EQ(pace.After(50, start), start + std::chrono::milliseconds(500));
  EXPECT_EQ(pace.After(100, start), start + std::chrono::milliseconds(1500));
}

TEST(Pace, DoesNotMakeUpForIdleTime) {
  Pace pace(100);
  const Clock::time_point start = Clock::now();
  (void)pace.After(100, start);
  EXPECT_EQ(pace.After(100, start + seconds(60)), start + seconds(61));
}

TEST(Pace, WithoutARateNothingWaits) {
  Pace pace(0);
  const Clock::time_point start = Clock::now();
  EXPECT_EQ(pace.After(size_t{1} << 40, start), start);
}

TEST(ReadControl, StoppingEndsAWaitAndAllLaterReading) {
  ReadControl control(1);
  Status status;
  std::thread reader([&] { status = control.Spend(1'000'000'000); });
  control.Stop();
  reader.join();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "loading was given up: the server is shutting down");
  EXPECT_FALSE(control.Spend(0).ok());
}

}  // namespace
}  // namespace embershard
