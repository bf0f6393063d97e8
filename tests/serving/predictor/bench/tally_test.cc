#include "bench/tally.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "bench/load_options.h"

namespace embershard::bench {
namespace {

using std::chrono::milliseconds;

const Clock::time_point kStart = Clock::time_point() + std::chrono::hours(1);

// Sent and answered so many milliseconds after kStart.
Outcome Answered(int scheduled_ms, int sent_ms, int answered_ms, int code = 0) {
  return {.scheduled = kStart + milliseconds(scheduled_ms),
          .ready = kStart + milliseconds(scheduled_ms),
          .sent = kStart + milliseconds(sent_ms),
          .answered = kStart + milliseconds(answered_ms),
          .code = code,
          .examples = 3,
          .answer_bytes = 10};
}

TEST(Tally, CountsLatencyFromTheScheduleNotFromTheSending) {
  Tally tally = {.counted_from = kStart};
  tally.Add(Answered(0, 40, 50), "");
  EXPECT_EQ(tally.latency.max(), 50'000'000);
  EXPECT_EQ(tally.lag.max(), 40'000'000);
}

TEST(Tally, LeavesOutWhatWasScheduledToWarmUp) {
  Tally tally = {.counted_from = kStart};
  tally.Add(Answered(-1, 5, 9), "");
  EXPECT_EQ(tally.requests, 0u);
  EXPECT_EQ(tally.latency.count(), 0u);
  tally.Add(Answered(0, 5, 9), "");
  EXPECT_EQ(tally.requests, 1u);
}

TEST(Tally, CountsFailuresByCodeWithoutLatencyExamplesOrBytes) {
  Tally tally = {.counted_from = kStart};
  tally.Add(Answered(0, 0, 7), "");
  tally.Add(Answered(1, 1, 8, 8), "full");
  tally.Add(Answered(2, 2, 9, 8), "still full");
  tally.Add(Answered(3, 3, 4, 14), "gone");
  EXPECT_EQ(tally.requests, 4u);
  EXPECT_EQ(tally.by_code[0], 1u);
  EXPECT_EQ(tally.by_code[8], 2u);
  EXPECT_EQ(tally.by_code[14], 1u);
  EXPECT_EQ(tally.messages[8], "full");
  EXPECT_EQ(tally.latency.count(), 1u);
  EXPECT_EQ(tally.lag.count(), 4u);
  EXPECT_EQ(tally.examples_ok, 3u);
  EXPECT_EQ(tally.answer_bytes, 10u);
}

TEST(Tally, TellsHowLongRefusalsTookFromTheSending) {
  Tally tally = {.counted_from = kStart};
  tally.Add(Answered(0, 40, 47, 8), "full");
  tally.Add(Answered(0, 0, 90, 4), "too late");
  Tally other = {.counted_from = kStart};
  other.Add(Answered(0, 10, 12, 8), "full");
  tally.Merge(other);
  EXPECT_EQ(tally.refusal.count(), 2u);
  EXPECT_EQ(tally.refusal.max(), 7'000'000);
}

TEST(Tally, TellsTheToolsOwnDelayFromTheWaitForACall) {
  Tally tally = {.counted_from = kStart};
  Outcome outcome = Answered(0, 40, 50);
  outcome.ready = kStart + milliseconds(30);
  tally.Add(outcome, "");
  EXPECT_EQ(tally.lag.max(), 40'000'000);
  EXPECT_EQ(tally.own_lag.max(), 10'000'000);
}

TEST(Tally, CountsWhereRequestsExpired) {
  Tally tally = {.counted_from = kStart}, other = tally;
  Outcome outcome = Answered(0, 900, 1000, 4);
  for (const Expired where : {Expired::kNo, Expired::kWithoutCall, Expired::kBeforeSend,
                              Expired::kBeforeSend, Expired::kSentLate}) {
    outcome.expired = where;
    other.Add(outcome, "late");
  }
  tally.Merge(other);
  EXPECT_EQ(tally.by_code[4], 5u);
  EXPECT_EQ(tally.expired_without_call, 1u);
  EXPECT_EQ(tally.expired_before_send, 2u);
  EXPECT_EQ(tally.expired_sent_late, 1u);
  EXPECT_EQ(tally.own_lag.count(), 5u);
}

TEST(Tally, FilesCodesThatGrpcDoesNotNameUnderUnknown) {
  Tally tally = {.counted_from = kStart};
  tally.Add(Answered(0, 0, 1, 99), std::string(1000, 'x'));
  tally.Add(Answered(0, 0, 1, -1), "");
  EXPECT_EQ(tally.by_code[2], 2u);
  EXPECT_EQ(tally.messages[2].size(), 300u);
}

TEST(Tally, RemembersTheLastScheduleAndTheLastAnswerThatIsOk) {
  Tally tally = {.counted_from = kStart};
  tally.Add(Answered(10, 10, 300), "");
  tally.Add(Answered(20, 20, 200), "");
  tally.Add(Answered(30, 30, 1030, 4), "late");
  EXPECT_EQ(tally.last_scheduled, milliseconds(30));
  EXPECT_EQ(tally.last_ok, milliseconds(300));
}

TEST(Tally, MergesEverything) {
  Tally first = {.counted_from = kStart}, second = first;
  first.Add(Answered(0, 1, 5), "");
  second.Add(Answered(10, 10, 30), "");
  second.Add(Answered(11, 11, 12, 8), "full");
  first.Merge(second);
  EXPECT_EQ(first.requests, 3u);
  EXPECT_EQ(first.by_code[8], 1u);
  EXPECT_EQ(first.messages[8], "full");
  EXPECT_EQ(first.latency.max(), 20'000'000);
  EXPECT_EQ(first.lag.count(), 3u);
  EXPECT_EQ(first.examples_ok, 6u);
  EXPECT_EQ(first.last_ok, milliseconds(30));
}

TEST(ShareOf, DealsOutAllAndDiffersByOne) {
  EXPECT_EQ(ShareOf(10, 0, 3), 4u);
  EXPECT_EQ(ShareOf(10, 1, 3), 3u);
  EXPECT_EQ(ShareOf(10, 2, 3), 3u);
  EXPECT_EQ(ShareOf(0, 1, 2), 0u);
}

}  // namespace
}  // namespace embershard::bench
