#include "grpc/server.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <gtest/gtest.h>

#include <future>
#include <string>
#include <thread>
#include <vector>

#include "grpc/serving_fixture.h"
#include "grpc/status_map.h"
#include "testing/wait_for.h"

namespace embershard::rpc {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

uint64_t CountOf(Serving* serving, Outcome outcome) {
  return serving->engine()->telemetry().Read().Count(outcome);
}

// Calls /grpc.health.v1.Health/Check by hand: field 1 of the request is the service's
// name, field 1 of the answer its status.
struct Health {
  grpc::Status status;
  std::string answer;
};

Health Check(const std::shared_ptr<grpc::Channel>& channel, const std::string& service) {
  std::string bytes;
  if (!service.empty()) bytes = std::string("\x0a") + static_cast<char>(service.size()) + service;
  const grpc::Slice slice(bytes);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer answer;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + seconds(30));
  std::promise<grpc::Status> done;
  grpc::GenericStub stub(channel);
  stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", grpc::StubOptions(), &request, &answer,
                 [&done](grpc::Status status) { done.set_value(std::move(status)); });
  Health health = {.status = done.get_future().get(), .answer = ""};
  std::vector<grpc::Slice> slices;
  if (health.status.ok() && answer.Dump(&slices).ok()) {
    for (const grpc::Slice& part : slices) {
      health.answer.append(reinterpret_cast<const char*>(part.begin()), part.size());
    }
  }
  return health;
}

constexpr char kServing[] = "\x08\x01";

TEST(Server, IsHealthyAsAWholeAndByService) {
  Serving serving;
  EXPECT_EQ(Check(serving.channel(), "").answer, kServing);
  EXPECT_EQ(Check(serving.channel(), "embershard.v1.Predictor").answer, kServing);
  EXPECT_EQ(Check(serving.channel(), "other").status.error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST(Server, PicksAFreePortAndRefusesOneInUse) {
  Serving serving;
  EXPECT_GT(serving.server()->port(), 0);
  auto engine = Engine::Start(std::make_unique<FakeModel>(), {});
  ASSERT_TRUE(engine.ok());
  const auto second =
      Server::Start(ServedModels::Of(std::move(*engine)), {.port = serving.server()->port()});
  EXPECT_EQ(second.status().code(), embershard::StatusCode::kUnavailable);
  EXPECT_EQ(second.status().message(),
            "cannot listen on 127.0.0.1:" + std::to_string(serving.server()->port()) + ": in use");
}

TEST(Server, ListensOnIpv6WithoutBrackets) {
  auto engine = Engine::Start(std::make_unique<FakeModel>(), {});
  ASSERT_TRUE(engine.ok());
  const auto server = Server::Start(ServedModels::Of(std::move(*engine)), {.host = "::1"});
  if (!server.ok()) GTEST_SKIP() << "this machine has no IPv6: " << server.status().message();
  EXPECT_GT((*server)->port(), 0);
}

TEST(Server, AnswersManyAtOnceEachItsOwn) {
  Serving serving;
  for (int round = 0; round < 20; ++round) {
    std::vector<std::unique_ptr<Call>> calls;
    for (int i = 0; i < 64; ++i) {
      v1::PredictRequest message = i % 2 == 0 ? NamedMessage() : PackedMessage();
      message.set_request_id(std::to_string(i));
      // Every eighth request is bad. Its neighbours in the batch are to be answered all the same.
      if (i % 8 == 7) message.mutable_packed()->mutable_values()->append(8, '\0');
      calls.push_back(std::make_unique<Call>(serving.stub(), message));
    }
    for (int i = 0; i < 64; ++i) {
      if (i % 8 == 7) {
        EXPECT_EQ(calls[i]->Wait().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
      } else {
        ExpectGood(calls[i]->Wait(), calls[i]->response());
        EXPECT_EQ(calls[i]->response().request_id(), std::to_string(i));
      }
    }
  }
}

TEST(Server, TellsARefusedClientWhenToRetry) {
  Gate gate;
  EngineOptions options;
  options.batching.max_queued_examples = 2;
  Serving serving(gate.model(), options, {.retry_pushback = milliseconds(35)});
  Call running(serving.stub(), NamedMessage());
  gate.WaitUntilRunning();
  // The model is busy: one of two requests waits, and the other is refused.
  Call first(serving.stub(), NamedMessage());
  Call second(serving.stub(), NamedMessage());
  EXPECT_TRUE(WaitFor([&serving] { return CountOf(&serving, Outcome::kQueueFull) == 1; }));
  gate.Open();
  const bool first_refused = !first.Wait().ok();
  Call& refused = first_refused ? first : second;
  Call& accepted = first_refused ? second : first;
  EXPECT_EQ(refused.Wait().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  const auto& metadata = refused.context().GetServerTrailingMetadata();
  const auto pushback = metadata.find(kRetryPushbackKey);
  ASSERT_NE(pushback, metadata.end());
  EXPECT_EQ(pushback->second, "35");
  ExpectGood(accepted.Wait(), accepted.response());
  ExpectGood(running.Wait(), running.response());
}

TEST(Server, BoundsTheMemoryOfMessagesThatWaitHoweverFewIdsTheyHold) {
  Gate gate;
  EngineOptions options;
  options.batching.max_queued_bytes = 2300000;
  Serving serving(gate.model(), options);
  Call running(serving.stub(), NamedMessage());
  gate.WaitUntilRunning();
  const v1::PredictRequest large = Swollen(NamedMessage(), 2000000);
  Call first(serving.stub(), large);
  Call second(serving.stub(), large);
  EXPECT_TRUE(WaitFor([&serving] { return CountOf(&serving, Outcome::kQueueFull) == 1; }));
  gate.Open();
  const bool first_refused = !first.Wait().ok();
  EXPECT_EQ((first_refused ? first : second).Wait().error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE((first_refused ? second : first).Wait().ok());
  // Nor can small parts swell: each of these takes 7 bytes on the way and 40 here.
  v1::PredictRequest many = NamedMessage();
  for (int i = 0; i < 60000; ++i) many.add_outputs("score");
  v1::PredictResponse response;
  const grpc::Status status = serving.Predict(many, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(status.error_message().starts_with("request: expected at most 2300000 bytes, got 2"))
      << status.error_message();
}

TEST(Server, DropsTheAnswerToAClientThatCancelled) {
  Gate gate;
  Serving serving(gate.model());
  Call cancelled(serving.stub(), NamedMessage());
  gate.WaitUntilRunning();
  cancelled.Cancel();
  EXPECT_EQ(cancelled.Wait().error_code(), grpc::StatusCode::CANCELLED);
  gate.Open();
  v1::PredictResponse response;
  ExpectGood(serving.Predict(NamedMessage(), &response), response);
}

TEST(Server, SparesTheModelCallsThatWereCancelledWhileTheyWaited) {
  Gate gate;
  Serving serving(gate.model());
  Call running(serving.stub(), NamedMessage());
  gate.WaitUntilRunning();
  {
    std::vector<std::unique_ptr<Call>> calls;
    for (int i = 0; i < 50; ++i) {
      calls.push_back(std::make_unique<Call>(serving.stub(), NamedMessage()));
    }
    EXPECT_TRUE(
        WaitFor([&serving] { return serving.engine()->Snapshot().queued.work.examples == 100; }));
    for (const auto& call : calls) call->Cancel();
  }
  // These are answered after the cancellations, which arrived first on the same connection.
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Check(serving.channel(), "").answer, kServing);
  gate.Open();
  serving.server()->Drain(seconds(30));
  EXPECT_GT(CountOf(&serving, Outcome::kAbandoned), 0U);
  EXPECT_EQ(CountOf(&serving, Outcome::kAbandoned) + CountOf(&serving, Outcome::kOk), 51U);
}

TEST(Server, AnswersACallAtItsDeadlineWhileTheModelIsBusy) {
  Gate gate;
  Serving serving(gate.model());
  // On a busy machine it may expire before it runs, and another one is tried.
  EXPECT_TRUE(WaitFor([&serving, &gate] {
    Call running(serving.stub(), NamedMessage(), milliseconds(50));
    EXPECT_EQ(running.Wait().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
    return gate.IsRunning();
  }));
  Call waiting(serving.stub(), NamedMessage(), milliseconds(50));
  EXPECT_EQ(waiting.Wait().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(WaitFor([&serving] {
    return serving.engine()->telemetry().Read().in_flight == 0 &&
           serving.engine()->Snapshot().queued.requests == 0;
  }));
  gate.Open();
  v1::PredictResponse response;
  ExpectGood(serving.Predict(NamedMessage(), &response), response);
  EXPECT_EQ(CountOf(&serving, Outcome::kOk), 1U);
  EXPECT_LE(serving.engine()->Snapshot().telemetry.batches,
            2U);  // The one that waited did not run.
}

TEST(Server, ACancelledCallLeavesTheQueueWhileTheModelIsBusy) {
  Gate gate;
  Serving serving(gate.model());
  Call running(serving.stub(), NamedMessage());
  gate.WaitUntilRunning();
  Call waiting(serving.stub(), NamedMessage());
  EXPECT_TRUE(WaitFor([&serving] { return serving.engine()->Snapshot().queued.work.ids == 7; }));
  waiting.Cancel();
  EXPECT_TRUE(WaitFor([&serving] { return serving.engine()->Snapshot().queued.work.ids == 0; }));
  EXPECT_TRUE(WaitFor([&serving] { return CountOf(&serving, Outcome::kAbandoned) == 1; }));
  running.Cancel();
  EXPECT_TRUE(WaitFor([&serving] { return CountOf(&serving, Outcome::kAbandoned) == 2; }));
  EXPECT_EQ(serving.engine()->telemetry().Read().in_flight, 0U);
  gate.Open();
  v1::PredictResponse response;
  ExpectGood(serving.Predict(NamedMessage(), &response), response);
}

TEST(Server, GivesACallWithoutADeadlineTheDefault) {
  Gate gate;
  Serving serving(gate.model(), {}, {.default_timeout = milliseconds(300)});
  Call running(serving.stub(), NamedMessage());
  gate.WaitUntilRunning();
  grpc::ClientContext context;
  const v1::PredictRequest message = NamedMessage();
  v1::PredictResponse response;
  std::promise<grpc::Status> done;
  serving.stub()->async()->Predict(&context, &message, &response, [&done](grpc::Status status) {
    done.set_value(std::move(status));
  });
  const grpc::Status status = done.get_future().get();  // While the model is busy.
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(status.error_message(), "the deadline passed while the request waited");
  EXPECT_EQ(CountOf(&serving, Outcome::kExpired), 1U);
  gate.Open();
  ExpectGood(running.Wait(), running.response());
}

TEST(Server, RefusesAMessageBeyondItsLimit) {
  Serving serving(std::make_unique<FakeModel>(), {}, {.max_message_bytes = 1000});
  v1::PredictRequest message = NamedMessage();
  message.set_request_id(std::string(1000, 'x'));
  v1::PredictResponse response;
  EXPECT_EQ(serving.Predict(message, &response).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  ExpectGood(serving.Predict(NamedMessage(), &response), response);
}

// A request that only validation refuses.
v1::PredictRequest UnknownId() {
  v1::PredictRequest message = NamedMessage();
  message.mutable_sparse(1)->set_values(BytesOf(std::vector<int64_t>{0, 2000}));
  return message;
}

TEST(Server, DrainAnswersTheAcceptedRefusesTheRestAndClosesThePort) {
  Gate gate;
  Serving serving(gate.model());
  Call running(serving.stub(), NamedMessage());
  gate.WaitUntilRunning();
  Call waiting(serving.stub(), NamedMessage());
  EXPECT_TRUE(
      WaitFor([&serving] { return serving.engine()->Snapshot().queued.work.examples > 0; }));
  std::thread drain([&serving] { serving.server()->Drain(seconds(60)); });
  // The server refuses all requests soon after Drain() begins, while the two calls above still wait
  // for the model. Until then it answers a bad request with another error.
  grpc::Status refused;
  EXPECT_TRUE(WaitFor([&serving, &refused] {
    v1::PredictResponse response;
    refused = serving.Predict(UnknownId(), &response);
    return refused.error_code() != grpc::StatusCode::INVALID_ARGUMENT;
  }));
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(refused.error_message(), "the server is shutting down");
  EXPECT_NE(Check(serving.channel(), "").answer, kServing);
  EXPECT_NE(Check(serving.channel(), "embershard.v1.Predictor").answer, kServing);
  gate.Open();
  drain.join();
  ExpectGood(running.Wait(), running.response());
  ExpectGood(waiting.Wait(), waiting.response());
  EXPECT_EQ(Check(serving.NewChannel(), "").status.error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST(Server, DrainEndsCallsThatTakeLongerThanItsTimeout) {
  Gate gate;
  Serving serving(gate.model());
  Call running(serving.stub(), NamedMessage());
  gate.WaitUntilRunning();
  std::thread drain([&serving] { serving.server()->Drain(milliseconds(0)); });
  EXPECT_FALSE(running.Wait().ok());
  gate.Open();
  drain.join();
}

TEST(Server, LosesNoCallWhenDrainedUnderLoad) {
  Serving serving;
  constexpr int kThreads = 4;
  std::atomic<int> good = 0;
  std::atomic<int> refused = 0;
  std::atomic<int> other = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      while (true) {
        Call call(serving.stub(), PackedMessage());
        const grpc::StatusCode code = call.Wait().error_code();
        if (code == grpc::StatusCode::OK &&
            FloatsOf(call.response().outputs(0).values()) == kGoodScores) {
          ++good;
        } else if (code == grpc::StatusCode::UNAVAILABLE || code == grpc::StatusCode::CANCELLED) {
          ++refused;  // CANCELLED: by gRPC, in the moment that the port closed.
          return;
        } else {
          ++other;
          return;
        }
      }
    });
  }
  EXPECT_TRUE(WaitFor([&good] { return good >= 500; }));
  serving.server()->Drain(seconds(30));
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(refused, kThreads);
  EXPECT_EQ(other, 0);
  EXPECT_EQ(CountOf(&serving, Outcome::kOk), static_cast<uint64_t>(good));
}

}  // namespace
}  // namespace embershard::rpc
