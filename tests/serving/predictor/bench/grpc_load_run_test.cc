#include "bench/grpc_load_run.h"

#include <grpcpp/alarm.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bench/load_options.h"

namespace embershard {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// What the fake server does with a request: the n-th it sees, from 0.
struct Plan {
  milliseconds delay{0};
  grpc::StatusCode code = grpc::StatusCode::OK;
};

// Answers every method with the bytes it was sent, as a plan says, without a thread that
// waits.
class FakeServer : public grpc::CallbackGenericService {
 public:
  explicit FakeServer(std::function<Plan(uint64_t)> plan) : plan_(std::move(plan)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeServer() override { server_->Shutdown(std::chrono::system_clock::now() + seconds(5)); }

  std::string target() const { return "ipv4:127.0.0.1:" + std::to_string(port_); }
  uint64_t seen() const { return seen_; }
  std::multiset<std::string> bodies() const {
    std::lock_guard lock(mutex_);
    return bodies_;
  }
  std::set<std::string> peers() const {
    std::lock_guard lock(mutex_);
    return peers_;
  }

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    return new Reactor(this, context);
  }

 private:
  class Reactor : public grpc::ServerGenericBidiReactor {
   public:
    Reactor(FakeServer* server, grpc::GenericCallbackServerContext* context) : server_(server) {
      server_->Note(context->peer());
      StartRead(&message_);
    }
    void OnReadDone(bool ok) override {
      if (!ok) return Finish(grpc::Status::CANCELLED);
      const Plan plan = server_->Take(message_);
      code_ = plan.code;
      if (plan.delay == milliseconds::zero()) return Answer();
      alarm_.Set(std::chrono::system_clock::now() + plan.delay, [this](bool) { Answer(); });
    }
    void OnCancel() override { alarm_.Cancel(); }  // So that a test's end does not wait for it.
    void OnDone() override { delete this; }

   private:
    void Answer() {
      if (code_ != grpc::StatusCode::OK) return Finish(grpc::Status(code_, "as planned"));
      StartWriteAndFinish(&message_, grpc::WriteOptions(), grpc::Status::OK);
    }

    FakeServer* const server_;
    grpc::ByteBuffer message_;
    grpc::StatusCode code_ = grpc::StatusCode::OK;
    grpc::Alarm alarm_;
  };

  void Note(const std::string& peer) {
    std::lock_guard lock(mutex_);
    peers_.insert(peer);
  }

  Plan Take(const grpc::ByteBuffer& message) {
    std::vector<grpc::Slice> slices;
    std::string body;
    if (message.Dump(&slices).ok()) {
      for (const grpc::Slice& part : slices) {
        body.append(reinterpret_cast<const char*>(part.begin()), part.size());
      }
    }
    std::lock_guard lock(mutex_);
    bodies_.insert(std::move(body));
    return plan_(seen_++);
  }

  const std::function<Plan(uint64_t)> plan_;
  std::atomic<uint64_t> seen_ = 0;
  mutable std::mutex mutex_;
  std::multiset<std::string> bodies_;  // Guarded by mutex_.
  std::set<std::string> peers_;        // Guarded by mutex_.
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

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
  options.rate_per_second = 2000;
  options.in_flight = 100;
  options.max_requests = 301;
  options.lanes = 2;
  const Tally tally = RunToTheEnd(options, {"a", "bb"});
  EXPECT_EQ(tally.requests(), 301u);
  EXPECT_EQ(tally.by_code()[0], 301u);
  EXPECT_EQ(tally.examples_ok(), 602u);
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
  EXPECT_EQ(tally.answer_bytes(), 3 * 5 + 3 * 3u);
}

TEST(GrpcLoadRun, ClosedLoopKeepsItsNumberInFlight) {
  // 40 requests of 50 ms, 4 at a time, take 10 rounds.
  FakeServer server([](uint64_t) { return Plan{.delay = milliseconds(50)}; });
  LoadOptions options = OptionsFor(server);
  options.in_flight = 4;
  options.max_requests = 40;
  const Clock::time_point begin = Clock::now();
  const Tally tally = RunToTheEnd(options);
  const auto took = Clock::now() - begin;
  EXPECT_EQ(tally.by_code()[0], 40u);
  EXPECT_GE(took, milliseconds(500));
  EXPECT_LT(took, milliseconds(1900));  // One at a time would take 2 s.
  EXPECT_GE(Quantile(tally.latency(), 0.01), 50);
}

TEST(GrpcLoadRun, MeasuresKnownDelaysWithinThreePercent) {
  // Of 20 requests 12 take 400 ms, 7 take 800 ms, 1 takes 1600 ms.
  FakeServer server([](uint64_t n) {
    const uint64_t place = n % 20;
    return Plan{.delay = milliseconds(place < 12 ? 400 : place < 19 ? 800 : 1600)};
  });
  LoadOptions options = OptionsFor(server);
  options.rate_per_second = 200;
  options.in_flight = 1000;
  options.max_requests = 200;
  const Tally tally = RunToTheEnd(options);
  EXPECT_EQ(tally.by_code()[0], 200u);
  EXPECT_NEAR(Quantile(tally.latency(), 0.50), 400, 0.03 * 400);
  EXPECT_NEAR(Quantile(tally.latency(), 0.90), 800, 0.03 * 800);
  EXPECT_NEAR(Quantile(tally.latency(), 0.99), 1600, 0.03 * 1600);
}

TEST(GrpcLoadRun, OpenLoopCountsTheWaitForAFreeCall) {
  // One call at a time, each of 20 ms, while 200 requests are due in about 0.2 s: the last
  // waits for the 4 s that those before it take.
  FakeServer server([](uint64_t) { return Plan{.delay = milliseconds(20)}; });
  LoadOptions options = OptionsFor(server);
  options.rate_per_second = 1000;
  options.in_flight = 1;
  options.max_requests = 100;
  const Tally tally = RunToTheEnd(options);
  EXPECT_EQ(tally.by_code()[0], 100u);
  EXPECT_GE(Quantile(tally.latency(), 0.99), 99 * 20 - 200);
  EXPECT_GE(Quantile(tally.lag(), 0.99), 98 * 20 - 200);
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
  EXPECT_EQ(tally.by_code()[grpc::StatusCode::RESOURCE_EXHAUSTED], 10u);
  EXPECT_EQ(tally.by_code()[grpc::StatusCode::INVALID_ARGUMENT], 10u);
  EXPECT_EQ(tally.by_code()[0], 20u);
  EXPECT_EQ(tally.messages()[grpc::StatusCode::INVALID_ARGUMENT], "as planned");
}

TEST(GrpcLoadRun, CountsADeadlineFromTheSchedule) {
  // Never answered in time; of two calls in flight the rest never leave. All count.
  FakeServer server([](uint64_t) { return Plan{.delay = seconds(3)}; });
  LoadOptions options = OptionsFor(server);
  options.rate_per_second = 500;
  options.in_flight = 2;
  options.max_requests = 50;
  options.timeout = milliseconds(300);
  const Tally tally = RunToTheEnd(options);
  EXPECT_EQ(tally.requests(), 50u);
  EXPECT_EQ(tally.by_code()[grpc::StatusCode::DEADLINE_EXCEEDED], 50u);
  EXPECT_LT(server.seen(), 50u);
}

TEST(GrpcLoadRun, EndsByItselfWhenItsTimeIsOver) {
  FakeServer server(AtOnce);
  LoadOptions options = OptionsFor(server);
  options.rate_per_second = 500;
  options.in_flight = 10;
  options.warmup = milliseconds(200);
  options.measure = milliseconds(400);
  const Tally tally = RunToTheEnd(options);
  EXPECT_LT(tally.last_scheduled(), milliseconds(400));
  EXPECT_GT(tally.requests(), 100u);  // 200 expected, with a deviation of 14.
  EXPECT_LT(tally.requests(), 300u);
  EXPECT_GT(server.seen(), tally.requests());  // The others warmed up.
}

TEST(GrpcLoadRun, StopsAtOnceWithCallsUnderWay) {
  FakeServer server([](uint64_t) { return Plan{.delay = seconds(5)}; });
  LoadOptions options = OptionsFor(server);
  options.in_flight = 5;
  GrpcLoadRun run(options, PoolOf({"abc"}));
  EXPECT_FALSE(run.WaitFor(milliseconds(100)));
  run.Stop();
  EXPECT_TRUE(run.WaitFor(seconds(4)));
  EXPECT_EQ(run.tally().requests(), 0u);
}

TEST(GrpcLoadRun, CountsAServerThatIsNotThere) {
  LoadOptions options;
  {
    FakeServer gone(AtOnce);
    options = OptionsFor(gone);
  }
  options.rate_per_second = 1000;
  options.in_flight = 10;
  options.max_requests = 20;
  options.timeout = milliseconds(500);
  const Tally tally = RunToTheEnd(options);
  EXPECT_EQ(tally.requests(), 20u);
  EXPECT_EQ(tally.by_code()[grpc::StatusCode::UNAVAILABLE], 20u);
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
}  // namespace embershard
