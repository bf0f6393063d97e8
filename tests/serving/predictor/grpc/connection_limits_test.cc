#include "grpc/connection/connection_limits.h"

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>

#include "grpc/connection/open_connections.h"
#include "grpc/raw_http2.h"
#include "grpc/serving_fixture.h"
#include "inference/open_inference.grpc.pb.h"
#include "testing/wait_for.h"

namespace embershard::rpc {
namespace {

using std::chrono::milliseconds;

std::unique_ptr<Serving> ServingWith(const ConnectionLimits& limits) {
  ServerOptions options;
  options.connections = limits;
  return std::make_unique<Serving>(std::make_unique<FakeModel>(), EngineOptions(), options);
}

TEST(ConnectionLimits, ClosesAConnectionAboveTheLimitUntilAnotherEnds) {
  const auto serving = ServingWith({.max_connections = 2});
  v1::PredictResponse response;
  ExpectGood(serving->Predict(NamedMessage(), &response), response);
  {
    Socket second(serving->server()->port());
    second.Send(kHello);
    EXPECT_TRUE(WaitFor([&second] { return second.Got(kSettings); }));
    EXPECT_FALSE(second.HasHungUp());
    v1::Predictor::Stub third(serving->NewChannel());
    Call refused(&third, NamedMessage());
    EXPECT_EQ(refused.Wait().error_code(), grpc::StatusCode::UNAVAILABLE);
    ExpectGood(serving->Predict(NamedMessage(), &response), response);
  }
  EXPECT_TRUE(WaitFor([&serving] {
    v1::Predictor::Stub third(serving->NewChannel());
    return Call(&third, NamedMessage()).Wait().ok();
  }));
}

TEST(ConnectionLimits, ACallTooManyWaitsAtItsClient) {
  Gate gate;
  ServerOptions options;
  options.connections.max_calls = 2;
  Serving serving(gate.model(), {}, options);
  Call running(serving.stub(), NamedMessage());
  gate.WaitUntilRunning();
  Call waiting(serving.stub(), NamedMessage());
  EXPECT_TRUE(
      WaitFor([&serving] { return serving.engine()->Snapshot().queued.work.examples > 0; }));
  Call late(serving.stub(), NamedMessage(), milliseconds(50));
  EXPECT_EQ(late.Wait().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  // The late call never reached the server.
  EXPECT_EQ(serving.engine()->telemetry().Read().in_flight, 2U);
  Call patient(serving.stub(), NamedMessage());
  gate.Open();
  ExpectGood(running.Wait(), running.response());
  ExpectGood(waiting.Wait(), waiting.response());
  ExpectGood(patient.Wait(), patient.response());
}

TEST(ConnectionLimits, ClosesAConnectionThatOpensTooManyCalls) {
  const auto serving = ServingWith({.max_calls = 2});
  Socket greedy(serving->server()->port());
  greedy.Send(kHello);
  EXPECT_TRUE(WaitFor([&greedy] { return greedy.Got(kSettings); }));
  constexpr char kAcknowledged = 1;
  std::string calls = Frame(kSettings, kAcknowledged, 0, "");
  for (const char stream : {1, 3, 5}) calls += BeginningOfACall(stream, kPredict);
  greedy.Send(calls);
  EXPECT_TRUE(WaitFor([&greedy] { return greedy.HasHungUp(); }));
  v1::PredictResponse response;
  ExpectGood(serving->Predict(NamedMessage(), &response), response);
}

TEST(ConnectionLimits, ClosesAConnectionThatPingsTooOftenWithTheReason) {
  const auto serving = ServingWith({});
  Socket asking(serving->server()->port());
  asking.Send(kHello);
  for (int i = 0; i < 4; ++i) asking.Send(Frame(kPing, 0, 0, std::string(8, '\0')));
  EXPECT_TRUE(WaitFor([&asking] { return asking.HasHungUp(); }));
  EXPECT_NE(asking.received().find("too_many_pings"), std::string::npos);
}

TEST(ConnectionLimits, WhoAsksAsOftenAsAllowedIsAnswered) {
  const auto serving = ServingWith({.min_ping = milliseconds(0)});
  Socket asking(serving->server()->port());
  asking.Send(kHello);
  for (int i = 0; i < 20; ++i) asking.Send(Frame(kPing, 0, 0, std::string(8, '\0')));
  const std::string answer = Frame(kPing, 1, 0, std::string(8, '\0'));
  EXPECT_TRUE(WaitFor([&] {
    size_t answers = 0;
    for (size_t at = 0; (at = asking.received().find(answer, at)) != std::string::npos; ++at) {
      ++answers;
    }
    return answers == 20;
  }));
  EXPECT_FALSE(asking.HasHungUp());
}

TEST(ConnectionLimits, ClosesAConnectionWithACallThatDoesNotAnswerPings) {
  const auto serving =
      ServingWith({.keepalive = milliseconds(30), .keepalive_timeout = milliseconds(30)});
  Socket silent(serving->server()->port());
  silent.Send(kHello + BeginningOfACall(1, kPredict));
  EXPECT_TRUE(WaitFor([&silent] { return silent.HasHungUp(); }));
}

TEST(ConnectionLimits, AConnectionOfAgeIsToldToGoAndTheCallOnItEnds) {
  Gate gate;
  ServerOptions options;
  options.connections.age = milliseconds(50);
  Serving serving(gate.model(), {}, options);
  Socket aging(serving.server()->port());
  aging.Send(kHello);
  Call running(serving.stub(), NamedMessage());
  gate.WaitUntilRunning();
  EXPECT_TRUE(WaitFor([&aging] { return aging.Got(kGoAway); }));
  gate.Open();
  ExpectGood(running.Wait(), running.response());
}

// A server with a token. Strangers have a budget, unless the server is behind a proxy.
class TokenServer {
 public:
  explicit TokenServer(bool behind_proxy = false) {
    ServerOptions options;
    options.security.token_file = testing::TempDir() + "connection_limits_test";
    std::ofstream(options.security.token_file) << kToken;
    options.connections.behind_proxy = behind_proxy;
    serving_ = std::make_unique<Serving>(std::make_unique<FakeModel>(), EngineOptions(), options);
  }

  Server* server() { return serving_->server(); }

  grpc::Status Predict(v1::Predictor::Stub* stub, const v1::PredictRequest& message) {
    grpc::ClientContext context;
    Authenticate(&context);
    v1::PredictResponse response;
    return stub->Predict(&context, message, &response);
  }

  static void Authenticate(grpc::ClientContext* context) {
    context->AddMetadata("authorization", std::string("Bearer ") + kToken);
  }

  std::shared_ptr<grpc::Channel> NewChannel() { return serving_->NewChannel(); }
  v1::Predictor::Stub NewStub() { return v1::Predictor::Stub(NewChannel()); }

 private:
  static constexpr char kToken[] = "one-token-of-a-test";
  std::unique_ptr<Serving> serving_;
};

TEST(ConnectionLimits, KeepsAConnectionThatOnlyAsksWithAToken) {
  TokenServer serving;
  inference::GRPCInferenceService::Stub asking(serving.NewChannel());
  inference::ModelReadyRequest request;
  request.set_name(std::string(4096, 'x'));
  for (size_t sent = 0; sent < 2 * OpenConnections::kStrangerBytes; sent += 4096) {
    grpc::ClientContext context;
    TokenServer::Authenticate(&context);
    inference::ModelReadyResponse response;
    const grpc::Status status = asking.ModelReady(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
  EXPECT_EQ(serving.server()->strangers_reset(), 0U);
}

// A header block without end.
void SendEndlessHeaders(Socket* stranger, size_t bytes) {
  constexpr char kContinuation = 9;
  constexpr size_t kFrameBytes = 16000;
  // A header "x" whose value has 2^28 characters.
  stranger->Send(kHello + Frame(kHeaders, 0, 1, std::string("\0\1x\x7f\x81\xff\xff\x7f", 8)));
  for (size_t sent = 0; sent < bytes && !stranger->HasHungUp(); sent += kFrameBytes) {
    stranger->Send(Frame(kContinuation, 0, 1, std::string(kFrameBytes, 'v')));
  }
}

TEST(ConnectionLimits, ResetsAStrangerThatSendsHeadersWithoutEnd) {
  TokenServer serving;
  v1::Predictor::Stub good = serving.NewStub();
  EXPECT_TRUE(serving.Predict(&good, NamedMessage()).ok());
  Socket stranger(serving.server()->port());
  SendEndlessHeaders(&stranger, OpenConnections::kStrangerBytes + (64 << 10));
  EXPECT_TRUE(WaitFor([&] { return serving.server()->strangers_reset() == 1; }));
  EXPECT_TRUE(serving.Predict(&good, NamedMessage()).ok());
}

TEST(ConnectionLimits, ResetsNoStrangerBehindAProxy) {
  TokenServer serving(/*behind_proxy=*/true);
  Socket stranger(serving.server()->port());
  SendEndlessHeaders(&stranger, OpenConnections::kStrangerBytes + (64 << 10));
  v1::Predictor::Stub good = serving.NewStub();
  EXPECT_TRUE(serving.Predict(&good, NamedMessage()).ok());
  EXPECT_EQ(serving.server()->strangers_reset(), 0U);
}

// The headers identify the client long before the whole message has arrived.
TEST(ConnectionLimits, TakesAFirstMessageAboveTheBudgetOfStrangers) {
  TokenServer serving;
  v1::PredictRequest large = NamedMessage();
  large.set_request_id(std::string(8 * OpenConnections::kStrangerBytes, 'x'));
  for (int i = 0; i < 10; ++i) {
    v1::Predictor::Stub stub = serving.NewStub();
    const grpc::Status status = serving.Predict(&stub, large);  // The message arrives whole.
    EXPECT_EQ(status.error_message(), "request_id: expected at most 1024 bytes, got 2097152");
  }
  EXPECT_EQ(serving.server()->strangers_reset(), 0U);
}

}  // namespace
}  // namespace embershard::rpc
