#include "bench/grpc_load_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "bench/fake_server.h"
#include "bench/load_options.h"

namespace embershard::bench {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

Plan AtOnce(uint64_t) { return {}; }

RequestPool PoolOf(const std::vector<std::string>& bodies) {
  RequestPool pool;
  for (const std::string& body : bodies) {
    const grpc::Slice slice(body);
    pool.push_back({.message = grpc::ByteBuffer(&slice, 1), .examples = 2});
  }
  return pool;
}

LoadOptions OptionsFor(const FakeServer& server) {
  LoadOptions options;
  options.target = server.target();
  options.method = "/any.Service/Method";
  options.measure = seconds(60);  // Far more than the requests take.
  options.timeout = seconds(30);
  return options;
}

// Sends a request every `gap`.
void SendEvery(Clock::duration gap, LoadOptions* options) {
  options->times = {milliseconds(0)};
  options->times_period = gap;
}

Tally RunToTheEnd(const LoadOptions& options, const std::vector<std::string>& bodies = {"abc"}) {
  GrpcLoadRun run(options, PoolOf(bodies));
  EXPECT_TRUE(run.WaitFor(seconds(100)));
  return run.tally();
}

// The q-quantile, at the upper end of its bucket, in milliseconds.
double Quantile(const Histogram& histogram, double q) {
  const auto rank = static_cast<uint64_t>(std::ceil(q * static_cast<double>(histogram.count())));
  uint64_t below = 0;
  for (const Histogram::Bucket& bucket : histogram.Buckets()) {
    below += bucket.count;
    if (below >= rank) return static_cast<double>(bucket.high) * 1e-6;
  }
  return 0;
}

TEST(GrpcLoadRun, OpenLoopAnswersEachRequestOnceAndEndsAtTheCount) {
  FakeServer server(AtOnce);
  LoadOptions options = OptionsFor(server);
  SendEvery(microseconds(500), &options);
  options.in_flight = 100;
  options.max_requests = 301;
  options.lanes = 2;
  const Tally tally = RunToTheEnd(options, {"a", "bb"});
  EXPECT_EQ(tally.requests, 301u);
  EXPECT_EQ(tally.by_code[0], 301u);
  EXPECT_EQ(tally.examples_ok, 602u);
  EXPECT_EQ(server.seen(), 301u);
}

TEST(GrpcLoadRun, SendsThePoolInTurnUnchanged) {
  FakeServer server(AtOnce);
  LoadOptions options = OptionsFor(server);
  options.in_flight = 3;
  options.max_requests = 8;
  const std::string zeros("\0x\0", 3);
  const Tally tally = RunToTheEnd(options, {"first", zeros, ""});
  EXPECT_EQ(server.bodies(),
            (std::multiset<std::string>{"first", "first", "first", zeros, zeros, zeros, "", ""}));
  EXPECT_EQ(tally.answer_bytes, 3 * 5 + 3 * 3u);
}

TEST(GrpcLoadRun, ClosedLoopKeepsItsNumberInFlight) {
  // The first four take so long that all others are sent meanwhile.
  FakeServer server([](uint64_t n) { return Plan{.delay = milliseconds(n < 4 ? 1000 : 50)}; });
  LoadOptions options = OptionsFor(server);
  options.in_flight = 4;
  options.max_requests = 40;
  const Tally tally = RunToTheEnd(options);
  EXPECT_EQ(tally.by_code[0], 40u);
  EXPECT_EQ(server.most_at_once(), 4u);
  EXPECT_GE(Quantile(tally.latency, 0.01), 50);
}

// An open loop of one lane whose messages state their place in the schedule.
struct Told {
  Tally tally;
  // Time from the schedule to the server's answer, by place. No true latency is shorter.
  std::vector<double> stated_ms;
  // Time from the schedule to the end of the run, by place. No true latency is longer.
  std::vector<double> longest_ms;
  std::vector<Clock::time_point> scheduled;
};

Told RunAndAskTheServer(FakeServer* server, Clock::duration gap, uint64_t requests,
                        uint64_t in_flight) {
  LoadOptions options = OptionsFor(*server);
  SendEvery(gap, &options);
  options.in_flight = in_flight;
  options.max_requests = requests;
  std::vector<std::string> places;
  for (uint64_t i = 0; i < requests; ++i) places.push_back(std::to_string(i));
  GrpcLoadRun run(options, PoolOf(places));
  EXPECT_TRUE(run.WaitFor(seconds(100)));
  const Clock::time_point end = Clock::now();

  Told told = {.tally = run.tally(), .stated_ms = {}, .longest_ms = {}, .scheduled = {}};
  std::map<std::string, Clock::time_point> answered = server->answered();
  EXPECT_EQ(answered.size(), requests);
  for (const std::string& place : places) {
    told.scheduled.push_back(run.start() + options.DueAt(told.scheduled.size()));
    const auto stated = answered[place] - told.scheduled.back();
    told.stated_ms.push_back(std::chrono::duration<double, std::milli>(stated).count());
    const auto longest = end - told.scheduled.back();
    told.longest_ms.push_back(std::chrono::duration<double, std::milli>(longest).count());
  }
  return told;
}

double QuantileOf(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(std::ceil(q * static_cast<double>(values.size()))) - 1];
}

TEST(GrpcLoadRun, MeasuresNoLessThanTheServerStatesAndNoMoreThanTheRunTook) {
  // 12 of 20 requests take 400 ms, 7 take 800 ms, and 1 takes 1600 ms.
  FakeServer server([](uint64_t n) {
    const uint64_t place = n % 20;
    return Plan{.delay = milliseconds(place < 12 ? 400 : place < 19 ? 800 : 1600)};
  });
  const Told told = RunAndAskTheServer(&server, milliseconds(5), 200, 200);
  EXPECT_EQ(told.tally.by_code[0], 200u);
  for (const double q : {0.25, 0.50, 0.75, 0.90, 0.95, 0.99}) {
    const double stated = QuantileOf(told.stated_ms, q);
    EXPECT_GE(stated, q <= 0.6 ? 400 : q <= 0.95 ? 800 : 1600) << q;
    EXPECT_GE(Quantile(told.tally.latency, q), stated) << q;
    // A bucket's upper end is at most 1 % above what it holds.
    EXPECT_LE(Quantile(told.tally.latency, q), 1.01 * QuantileOf(told.longest_ms, q)) << q;
  }
}

TEST(GrpcLoadRun, CountsAStallOnEveryRequestScheduledInIt) {
  static constexpr auto kStall = milliseconds(200);
  Clock::time_point begin;  // Written under the server's lock, read when it is done.
  FakeServer server([&begin](uint64_t n) {
    const Clock::time_point now = Clock::now();
    if (n == 100) begin = now;
    const bool stalled = n >= 100 && now < begin + kStall;
    return Plan{.delay = stalled ? begin + kStall - now : Clock::duration::zero()};
  });
  // Eight calls block in the stall. Other requests that are due in it leave later, but their
  // latency includes the wait.
  const Told told = RunAndAskTheServer(&server, milliseconds(1), 3000, 8);
  EXPECT_EQ(told.tally.by_code[0], 3000u);

  // A request due in the stall had to wait for its end.
  std::vector<double> waits_ms;
  for (const Clock::time_point due : told.scheduled) {
    if (due < begin || due >= begin + kStall) continue;
    waits_ms.push_back(std::chrono::duration<double, std::milli>(begin + kStall - due).count());
  }
  EXPECT_GE(waits_ms.size(), 199u);
  for (double limit_ms = 1; limit_ms < 200; limit_ms += 1) {
    const auto waited = std::count_if(waits_ms.begin(), waits_ms.end(),
                                      [limit_ms](double wait) { return wait >= limit_ms; });
    uint64_t counted = 0;
    for (const Histogram::Bucket& bucket : told.tally.latency.Buckets()) {
      if (static_cast<double>(bucket.high) * 1e-6 >= limit_ms) counted += bucket.count;
    }
    EXPECT_GE(counted, static_cast<uint64_t>(waited)) << limit_ms << " ms or more";
  }
}

TEST(LoadOptions, TimesComeAgainAPeriodLater) {
  LoadOptions options;
  options.times = {milliseconds(0), milliseconds(7), milliseconds(7)};
  options.times_period = milliseconds(10);
  uint64_t number = 0;
  for (const int64_t expected : {0, 7, 7, 10, 17, 17, 20}) {
    EXPECT_EQ(options.DueAt(number++), milliseconds(expected));
  }
}

TEST(GrpcLoadRun, SendsAtTheTimesThatWereGiven) {
  FakeServer server(AtOnce);
  LoadOptions options = OptionsFor(server);
  options.times = {milliseconds(0), milliseconds(30), milliseconds(40)};
  options.times_period = milliseconds(100);
  options.in_flight = 10;
  options.max_requests = 6;
  options.lanes = 2;
  const Tally tally = RunToTheEnd(options, {"first", "second", "third"});
  EXPECT_EQ(tally.by_code[0], 6u);
  EXPECT_EQ(tally.last_scheduled, milliseconds(140));
  EXPECT_EQ(server.bodies(),
            (std::multiset<std::string>{"first", "first", "second", "second", "third", "third"}));
}

TEST(GrpcLoadRun, KeepsTheFirstGoodAnswerToEachRequest) {
  // The second is refused; the fifth is never sent.
  FakeServer server([](uint64_t n) {
    return Plan{.code = n == 1 ? grpc::StatusCode::UNAVAILABLE : grpc::StatusCode::OK};
  });
  LoadOptions options = OptionsFor(server);
  options.in_flight = 1;
  options.max_requests = 4;
  options.keep_answers = true;
  GrpcLoadRun run(options, PoolOf({"a", "b", "c", "d", "e"}));
  ASSERT_TRUE(run.WaitFor(seconds(100)));
  std::vector<std::string> texts;
  for (const auto& answer : run.TakeAnswers()) {
    texts.push_back(answer.has_value() ? TextOf(*answer) : "none");
  }
  EXPECT_EQ(texts, (std::vector<std::string>{"a", "none", "c", "d", "none"}));
}

TEST(GrpcLoadRun, LanesShareThePoolInTurn) {
  FakeServer server(AtOnce);
  LoadOptions options = OptionsFor(server);
  options.in_flight = 3;
  options.max_requests = 9;
  options.lanes = 3;
  RunToTheEnd(options, {"a", "b", "c", "d"});
  EXPECT_EQ(server.bodies(),
            (std::multiset<std::string>{"a", "a", "a", "b", "b", "c", "c", "d", "d"}));
}

TEST(GrpcLoadRun, OpenLoopCountsTheWaitForAFreeCall) {
  // One call at a time takes 20 ms, while 100 requests are due in 0.1 s. The last one waits 2 s for
  // those before it.
  FakeServer server([](uint64_t) { return Plan{.delay = milliseconds(20)}; });
  LoadOptions options = OptionsFor(server);
  SendEvery(milliseconds(1), &options);
  options.in_flight = 1;
  options.max_requests = 100;
  const Tally tally = RunToTheEnd(options);
  EXPECT_EQ(tally.by_code[0], 100u);
  EXPECT_GE(Quantile(tally.latency, 0.99), 99 * 20 - 200);
  EXPECT_GE(Quantile(tally.lag, 0.99), 98 * 20 - 200);
  EXPECT_LT(Quantile(tally.own_lag, 0.5), 20);
}

TEST(GrpcLoadRun, CountsFailuresByCode) {
  FakeServer server([](uint64_t n) {
    return Plan{.code = n % 4 == 0   ? grpc::StatusCode::RESOURCE_EXHAUSTED
                        : n % 4 == 1 ? grpc::StatusCode::INVALID_ARGUMENT
                                     : grpc::StatusCode::OK};
  });
  LoadOptions options = OptionsFor(server);
  options.in_flight = 2;
  options.max_requests = 40;
  const Tally tally = RunToTheEnd(options);
  EXPECT_EQ(tally.by_code[grpc::StatusCode::RESOURCE_EXHAUSTED], 10u);
  EXPECT_EQ(tally.by_code[grpc::StatusCode::INVALID_ARGUMENT], 10u);
  EXPECT_EQ(tally.by_code[0], 20u);
  EXPECT_EQ(tally.messages[grpc::StatusCode::INVALID_ARGUMENT], "as planned");
}

TEST(GrpcLoadRun, CountsADeadlineFromTheSchedule) {
  // All requests are due at once and are never answered in time. Two are in flight; the rest never
  // leave. All count.
  FakeServer server([](uint64_t) { return Plan{.delay = seconds(3)}; });
  LoadOptions options = OptionsFor(server);
  SendEvery(std::chrono::nanoseconds(1), &options);
  options.in_flight = 2;
  options.max_requests = 50;
  options.timeout = milliseconds(300);
  const Tally tally = RunToTheEnd(options);
  EXPECT_EQ(tally.requests, 50u);
  EXPECT_EQ(tally.by_code[grpc::StatusCode::DEADLINE_EXCEEDED], 50u);
  EXPECT_LT(server.seen(), 50u);
  EXPECT_GE(tally.expired_without_call, 1u);
  EXPECT_GE(tally.expired_without_call + tally.expired_before_send + tally.expired_sent_late, 48u);
}

TEST(GrpcLoadRun, TellsRequestsThatItWasTooSlowToSend) {
  // All requests are due at once, with a call free for each. No machine sends 2,000 in 1 ms.
  FakeServer server(AtOnce);
  LoadOptions options = OptionsFor(server);
  SendEvery(std::chrono::nanoseconds(1), &options);
  options.in_flight = 2'000;
  options.max_requests = 2'000;
  options.timeout = milliseconds(1);
  const Tally tally = RunToTheEnd(options);
  EXPECT_EQ(tally.requests, 2'000u);
  EXPECT_GE(tally.expired_before_send, 1u);
  EXPECT_EQ(tally.expired_without_call, 0u);
  EXPECT_GE(Quantile(tally.own_lag, 0.99), 1);
}

TEST(GrpcLoadRun, EndsByItselfWhenItsTimeIsOver) {
  FakeServer server(AtOnce);
  LoadOptions options = OptionsFor(server);
  SendEvery(milliseconds(2), &options);
  options.in_flight = 10;
  options.warmup = milliseconds(200);
  options.measure = milliseconds(400);
  const Tally tally = RunToTheEnd(options);
  EXPECT_LT(tally.last_scheduled, milliseconds(400));
  EXPECT_EQ(tally.requests, 200u);
  EXPECT_GT(server.seen(), tally.requests);  // The server also saw the warm-up.
}

TEST(GrpcLoadRun, StopsAtOnceWithCallsUnderWay) {
  FakeServer server([](uint64_t) { return Plan{.delay = std::chrono::hours(1)}; });
  LoadOptions options = OptionsFor(server);
  options.in_flight = 5;
  GrpcLoadRun run(options, PoolOf({"abc"}));
  EXPECT_FALSE(run.WaitFor(milliseconds(100)));
  run.Stop();
  EXPECT_TRUE(run.WaitFor(std::chrono::minutes(4)));
  EXPECT_EQ(run.tally().requests, 0u);
}

TEST(GrpcLoadRun, CountsAServerThatIsNotThere) {
  LoadOptions options;
  {
    FakeServer gone(AtOnce);
    options = OptionsFor(gone);
  }
  SendEvery(milliseconds(1), &options);
  options.in_flight = 10;
  options.max_requests = 20;
  options.timeout = std::chrono::seconds(3);
  const Tally tally = RunToTheEnd(options);
  EXPECT_EQ(tally.requests, 20u);
  EXPECT_EQ(tally.by_code[grpc::StatusCode::UNAVAILABLE], 20u);
}

TEST(GrpcLoadRun, OpensAsManyConnectionsAsAsked) {
  FakeServer server(AtOnce);
  LoadOptions options = OptionsFor(server);
  options.in_flight = 4;
  options.max_requests = 40;
  options.lanes = 2;
  options.connections_per_lane = 3;
  RunToTheEnd(options);
  EXPECT_EQ(server.peers().size(), 6u);
}

}  // namespace
}  // namespace embershard::bench
