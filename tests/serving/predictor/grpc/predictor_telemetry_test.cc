// Every Predict call is counted once, by what became of it, and described if it was slow.

#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "grpc/serving_fixture.h"
#include "telemetry/telemetry.h"
#include "testing/wait_for.h"

namespace embershard::rpc {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

// Ages for which the model behaves in another way.
constexpr float kFails = 101;
constexpr float kGivesNan = 102;
constexpr float kFillsMemory = 103;

std::unique_ptr<FakeModel> Moody(std::unique_ptr<FakeModel> model) {
  model->before_run = [before = model->before_run](const Slot& slot) -> Status {
    if (slot.request_dense[0] == kFails) return Internal("the dense program failed");
    if (slot.request_dense[0] == kFillsMemory) throw std::bad_alloc();
    return before(slot);
  };
  model->after_run = [](Slot* slot) {
    if (slot->request_dense[0] != kGivesNan) return;
    slot->outputs[0][0] = std::numeric_limits<float>::quiet_NaN();
  };
  return model;
}

// Calls, and the sizes of their messages.
class Traffic {
 public:
  explicit Traffic(Serving* serving) : serving_(serving) {}

  std::unique_ptr<Call> Begin(const v1::PredictRequest& message,
                              milliseconds timeout = seconds(30)) {
    ++calls_;
    bytes_received_ += message.ByteSizeLong();
    return std::make_unique<Call>(serving_->stub(), message, timeout);
  }

  grpc::StatusCode End(Call* call) {
    const grpc::Status& status = call->Wait();
    if (status.ok()) bytes_sent_ += call->response().ByteSizeLong();
    return status.error_code();
  }

  grpc::StatusCode Ask(const v1::PredictRequest& message) { return End(Begin(message).get()); }

  grpc::StatusCode AskAged(float age) {
    v1::PredictRequest message = NamedMessage();
    message.mutable_dense(0)->set_values(BytesOf(std::vector<float>{age}));
    return Ask(message);
  }

  uint64_t calls() const { return calls_; }
  uint64_t bytes_received() const { return bytes_received_; }
  uint64_t bytes_sent() const { return bytes_sent_; }

 private:
  Serving* const serving_;
  uint64_t calls_ = 0;
  uint64_t bytes_received_ = 0;
  uint64_t bytes_sent_ = 0;
};

// Sends requests that the parser or validation refuses.
void SendRefused(Traffic* traffic) {
  v1::PredictRequest message = NamedMessage();
  message.set_model("other");
  EXPECT_EQ(traffic->Ask(message), grpc::StatusCode::NOT_FOUND);
  message = NamedMessage();
  message.add_outputs("scores");
  EXPECT_EQ(traffic->Ask(message), grpc::StatusCode::NOT_FOUND);
  message = PackedMessage();
  message.mutable_packed()->set_schema(0xab);
  EXPECT_EQ(traffic->Ask(message), grpc::StatusCode::FAILED_PRECONDITION);
  message = NamedMessage();
  message.mutable_dense(1)->set_values("1234567");
  EXPECT_EQ(traffic->Ask(message), grpc::StatusCode::INVALID_ARGUMENT);
  message = NamedMessage();
  message.mutable_sparse(1)->set_values(BytesOf(std::vector<int64_t>{1, -5}));
  EXPECT_EQ(traffic->Ask(message), grpc::StatusCode::INVALID_ARGUMENT);
  message = Swollen(NamedMessage(), 200000);
  EXPECT_EQ(traffic->Ask(message), grpc::StatusCode::INVALID_ARGUMENT);
}

// Our clients ask for the model first: of one that is not served they send no Predict.
TEST(PredictorTelemetry, CountsAGetModelCallThatFindsNoModelOnce) {
  Serving serving;
  const auto ask = [&serving](const char* name) {
    grpc::ClientContext context;
    v1::GetModelRequest message;
    message.set_model(name);
    v1::GetModelResponse model;
    return serving.stub()->GetModel(&context, message, &model).error_code();
  };
  EXPECT_EQ(ask("other"), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(ask("fake"), grpc::StatusCode::OK);
  Traffic traffic(&serving);
  EXPECT_EQ(traffic.Ask(NamedMessage()), grpc::StatusCode::OK);
  const TelemetrySnapshot unserved = serving.served()->telemetry().Read();
  EXPECT_EQ(unserved.Count(Outcome::kNotFound), 1U);
  EXPECT_EQ(unserved.in_flight, 0U);
  EXPECT_EQ(Counted(&serving).Count(Outcome::kOk), 1U);
}

TEST(PredictorTelemetry, CountsEachCallOnceByWhatBecameOfIt) {
  Gate gate;
  EngineOptions options;
  options.batching.max_queued_examples = 6;
  options.batching.max_batch_examples = 4;
  options.batching.max_queued_bytes = 100000;
  Serving serving(Moody(gate.model()), options);
  Traffic traffic(&serving);
  const auto queued = [&serving] { return serving.engine()->Snapshot().queued.requests; };

  const auto running = traffic.Begin(NamedMessage());
  gate.WaitUntilRunning();
  SendRefused(&traffic);
  const auto waiting = traffic.Begin(NamedMessage());
  EXPECT_TRUE(WaitFor([&queued] { return queued() == 1; }));
  const auto late = traffic.Begin(NamedMessage(), seconds(5));
  const auto left = traffic.Begin(NamedMessage());
  EXPECT_TRUE(WaitFor([&queued] { return queued() == 3; }));
  EXPECT_EQ(traffic.Ask(NamedMessage()), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Counted(&serving).in_flight, 4U);
  left->Cancel();
  EXPECT_EQ(traffic.End(left.get()), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(traffic.End(late.get()), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(WaitFor([&queued] { return queued() == 1; }));  // At once, though the model is busy.
  gate.Open();
  EXPECT_EQ(traffic.End(running.get()), grpc::StatusCode::OK);
  EXPECT_EQ(traffic.End(waiting.get()), grpc::StatusCode::OK);
  EXPECT_EQ(traffic.AskAged(kFails), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(traffic.AskAged(kGivesNan), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(traffic.AskAged(kFillsMemory), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(traffic.Ask(PackedMessage()), grpc::StatusCode::OK);

  const TelemetrySnapshot read = Counted(&serving);
  const std::vector<std::pair<Outcome, uint64_t>> expected = {
      {Outcome::kOk, 3},           {Outcome::kMalformed, 1},
      {Outcome::kRefused, 1},      {Outcome::kTooLarge, 1},
      {Outcome::kNotFound, 2},     {Outcome::kStaleSchema, 1},
      {Outcome::kQueueFull, 1},    {Outcome::kExpired, 1},
      {Outcome::kAbandoned, 1},    {Outcome::kModelFailed, 1},
      {Outcome::kNotFinite, 1},    {Outcome::kOutOfMemory, 1},
      {Outcome::kShuttingDown, 0}, {Outcome::kDeadlineInfeasible, 0},
      {Outcome::kWithdrawn, 0}};
  ASSERT_EQ(expected.size(), kOutcomes);
  uint64_t calls = 0;
  for (const auto& [outcome, count] : expected) {
    EXPECT_EQ(read.Count(outcome), count) << NameOf(outcome).reason;
    calls += read.Count(outcome);
  }
  EXPECT_EQ(calls, traffic.calls());
  EXPECT_EQ(read.in_flight, 0U);
  EXPECT_EQ(read.examples, 6U);
  EXPECT_EQ(read.bytes_received, traffic.bytes_received());
  EXPECT_EQ(read.bytes_sent, traffic.bytes_sent());
}

TEST(PredictorTelemetry, CountsWhatComesWhileTheServerStops) {
  Gate gate;
  Serving serving(gate.model());
  Traffic traffic(&serving);
  const auto running = traffic.Begin(NamedMessage());
  gate.WaitUntilRunning();
  std::thread drain([&serving] { serving.server()->Drain(seconds(60)); });
  // The server refuses all requests soon after Drain() begins. Until then it answers a bad request
  // with another error.
  v1::PredictRequest bad = NamedMessage();
  bad.set_model("other");
  EXPECT_TRUE(WaitFor([&] { return traffic.Ask(bad) == grpc::StatusCode::UNAVAILABLE; }));
  gate.Open();
  drain.join();
  EXPECT_EQ(traffic.End(running.get()), grpc::StatusCode::OK);
  const TelemetrySnapshot read = Counted(&serving);
  EXPECT_EQ(read.Count(Outcome::kShuttingDown), 1U);
  EXPECT_EQ(read.Count(Outcome::kOk), 1U);
  EXPECT_EQ(read.Count(Outcome::kNotFound), traffic.calls() - 2);
  EXPECT_EQ(read.in_flight, 0U);
  EXPECT_EQ(read.bytes_received, traffic.bytes_received());
}

TEST(PredictorTelemetry, CountsEachOfManyCallsAtOnce) {
  Serving serving;
  Traffic traffic(&serving);
  for (int round = 0; round < 10; ++round) {
    std::vector<std::unique_ptr<Call>> calls;
    for (int i = 0; i < 32; ++i) {
      v1::PredictRequest message = i % 2 == 0 ? NamedMessage() : PackedMessage();
      if (i % 8 == 7) message.mutable_packed()->mutable_values()->append(8, '\0');
      calls.push_back(traffic.Begin(message));
    }
    for (const auto& call : calls) traffic.End(call.get());
  }
  const TelemetrySnapshot read = Counted(&serving);
  EXPECT_EQ(read.Count(Outcome::kOk), 280U);
  EXPECT_EQ(read.Count(Outcome::kMalformed), 40U);  // More values than the lengths say.
  EXPECT_EQ(read.examples, 560U);
  EXPECT_EQ(read.in_flight, 0U);
  EXPECT_EQ(read.bytes_received, traffic.bytes_received());
  EXPECT_EQ(read.bytes_sent, traffic.bytes_sent());
  EXPECT_EQ(read.unknown_ids, (std::vector<uint64_t>{0, 0, 0, 280, 0}));
}

TEST(PredictorTelemetry, DescribesASlowCallAndWhoMadeIt) {
  Serving serving(std::make_unique<FakeModel>(), {}, {}, nanoseconds(1));
  v1::PredictRequest message = NamedMessage();
  message.set_request_id(std::string(127, 'x') + "é");  // One byte more than is kept.
  grpc::ClientContext context;
  context.AddMetadata("traceparent", "00-" + std::string(200, 'a'));
  v1::PredictResponse response;
  ASSERT_TRUE(serving.stub()->Predict(&context, message, &response).ok());
  const std::vector<SlowRequest> slow =
      serving.served()->telemetry().slow_log().Wait(nanoseconds(0));
  ASSERT_EQ(slow.size(), 1U);
  EXPECT_EQ(slow[0].outcome, Outcome::kOk);
  EXPECT_EQ(slow[0].message, "");
  EXPECT_EQ(slow[0].examples, 2U);
  EXPECT_EQ(slow[0].ids, 7U);
  EXPECT_EQ(slow[0].bytes, message.ByteSizeLong());
  EXPECT_EQ(slow[0].traceparent, "00-" + std::string(125, 'a'));
  EXPECT_EQ(slow[0].request_id, std::string(127, 'x'));
  EXPECT_TRUE(slow[0].peer.starts_with("ipv4:127.0.0.1:")) << slow[0].peer;
  EXPECT_EQ(slow[0].lookup_us, 11U);
  EXPECT_EQ(slow[0].dense_us, 22U);
  EXPECT_EQ(slow[0].queue_us, response.timing().queue_us());
  EXPECT_GE(slow[0].total_us, response.timing().total_us());
  EXPECT_GT(slow[0].unix_seconds, 1.7e9);
}

TEST(PredictorTelemetry, DescribesSlowCallsThatFailed) {
  EngineOptions options;
  options.batching.max_queued_bytes = 100000;
  Serving serving(Moody(std::make_unique<FakeModel>()), options, {}, nanoseconds(1));
  Traffic traffic(&serving);
  SendRefused(&traffic);
  traffic.AskAged(kGivesNan);
  const std::vector<SlowRequest> slow =
      serving.served()->telemetry().slow_log().Wait(nanoseconds(0));
  ASSERT_EQ(slow.size(), 7U);
  EXPECT_EQ(slow[0].outcome, Outcome::kNotFound);
  EXPECT_EQ(slow[0].message, "model 'other' is not served here, expected 'fake' version 3");
  EXPECT_EQ(slow[0].examples, 2U);
  EXPECT_EQ(slow[0].ids, 0U);  // The ids were not counted.
  EXPECT_EQ(slow[0].traceparent, "");
  EXPECT_EQ(slow[6].outcome, Outcome::kNotFinite);
  EXPECT_EQ(slow[6].ids, 7U);
  EXPECT_EQ(slow[6].lookup_us, 11U);
  EXPECT_EQ(slow[6].dense_us, 22U);
}

TEST(PredictorTelemetry, DescribesNoCallThatWasFast) {
  Serving serving(std::make_unique<FakeModel>(), {}, {}, std::chrono::hours(1));
  v1::PredictResponse response;
  ExpectGood(serving.Predict(NamedMessage(), &response), response);
  EXPECT_EQ(Counted(&serving).slow_seen, 0U);
  EXPECT_TRUE(serving.served()->telemetry().slow_log().Wait(nanoseconds(0)).empty());
}

}  // namespace
}  // namespace embershard::rpc
