#include "batching/dispatch_policy.h"

#include <gtest/gtest.h>

namespace embershard {
namespace {

using std::chrono::microseconds;

Clock::time_point At(int64_t time) { return Clock::time_point(microseconds(time)); }

// Ten requests that take 100 us together and have no close deadline. Another slot is free in 500
// us.
DispatchQuestion Little(size_t slots, size_t free) {
  return {.slots = slots,
          .free = free,
          .requests = 10,
          .work = microseconds(100),
          .first_end = At(10'500),
          .now = At(10'000)};
}

TEST(DispatchPolicy, LittleWorkWaits) {
  EXPECT_FALSE(ShouldDispatch(Little(4, 3)));
  EXPECT_FALSE(ShouldDispatch(Little(4, 1)));
}

TEST(DispatchPolicy, DispatchesChunksFullBatchesAndUnknownWork) {
  DispatchQuestion question = Little(2, 1);
  question.has_chunk = true;
  EXPECT_TRUE(ShouldDispatch(question));
  question = Little(2, 1);
  question.fills_batch = true;
  EXPECT_TRUE(ShouldDispatch(question));
  question = Little(2, 1);
  question.work = microseconds(0);
  EXPECT_TRUE(ShouldDispatch(question));
}

TEST(DispatchPolicy, DispatchesRequestsOfAMillisecondInAnySlot) {
  for (const size_t free : {3, 1}) {
    DispatchQuestion question = Little(4, free);
    question.requests = 1;
    question.work = microseconds(999);
    EXPECT_FALSE(ShouldDispatch(question));
    question.work = microseconds(1000);
    EXPECT_TRUE(ShouldDispatch(question));
    question.requests = 2;
    question.work = microseconds(1999);
    EXPECT_FALSE(ShouldDispatch(question));
  }
}

TEST(DispatchPolicy, NeedsFourTimesTheWorkOnceHalfOfTheSlotsRun) {
  for (const auto& [slots, free, least] : {std::tuple(4, 3, 2000),
                                           {4, 2, 8000},
                                           {4, 1, 8000},
                                           {2, 1, 8000},
                                           {3, 2, 2000},
                                           {3, 1, 8000}}) {
    DispatchQuestion question = Little(slots, free);
    question.work = microseconds(least - 1);
    EXPECT_FALSE(ShouldDispatch(question)) << slots << free;
    question.work = microseconds(least);
    EXPECT_TRUE(ShouldDispatch(question)) << slots << free;
  }
}

TEST(DispatchPolicy, BoundsTheWaitForAnotherSlot) {
  for (const auto& [free, most] : {std::pair(3, 2000), {2, 8000}}) {
    DispatchQuestion question = Little(4, free);
    for (const int64_t sign : {1, -1}) {
      question.first_end = At(10'000 + sign * (most - 1));
      EXPECT_FALSE(ShouldDispatch(question)) << free << " " << sign;
      question.first_end = At(10'000 + sign * most);
      EXPECT_TRUE(ShouldDispatch(question)) << free << " " << sign;
    }
  }
}

TEST(DispatchPolicy, DispatchesBeforeTheDeadlineIsMissed) {
  // The 100 us of work may take 125 us.
  DispatchQuestion question = Little(2, 1);
  question.deadline = At(10'626);
  EXPECT_FALSE(ShouldDispatch(question));
  question.deadline = At(10'625);
  EXPECT_TRUE(ShouldDispatch(question));
  question.first_end = At(9'900);  // The batch is late, so it ends now at the earliest.
  question.deadline = At(10'126);
  EXPECT_FALSE(ShouldDispatch(question));
  question.deadline = At(10'125);
  EXPECT_TRUE(ShouldDispatch(question));
}

TEST(DispatchPolicy, AsksAgainWhenTheAnswerChanges) {
  for (const int64_t deadline : {1'000'000, 10'700}) {
    for (const size_t free : {3, 2}) {
      DispatchQuestion question = Little(4, free);
      question.deadline = At(deadline);
      ASSERT_FALSE(ShouldDispatch(question));
      const Clock::time_point again = NextDispatchTime(question);
      question.now = again - std::chrono::nanoseconds(1);
      EXPECT_FALSE(ShouldDispatch(question)) << deadline << " " << free;
      question.now = again;
      EXPECT_TRUE(ShouldDispatch(question)) << deadline << " " << free;
    }
  }
}

}  // namespace
}  // namespace embershard
