// Many requests on one call: each is answered by itself, whatever becomes of the others.

#include "grpc/predict/predict_stream.h"

#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "grpc/predict_stream_fixture.h"
#include "testing/wait_for.h"

namespace embershard::rpc {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(PredictStream, AnswersEachRequestUnderItsId) {
  Serving serving;
  Stream stream(serving.stub());
  std::map<std::string, v1::PredictResponse> answers;
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(stream.Write(Asking(std::to_string(i))));
  for (int i = 0; i < 100; ++i) {
    v1::PredictResponse answer = stream.Read();
    answers[answer.request_id()] = std::move(answer);
  }
  ASSERT_EQ(answers.size(), 100U);
  for (const auto& [id, answer] : answers) ExpectGoodFor(id, answer);
  EXPECT_EQ(answers["0"].model(), "fake");
  EXPECT_EQ(answers["0"].version(), 3);
  EXPECT_EQ(answers["0"].timing().dense_us(), 22U);
  stream.HalfClose();
  EXPECT_TRUE(stream.Finish().ok());
  EXPECT_EQ(stream.unread(), 0);
}

TEST(PredictStream, AnswersWhatIsReadyFirst) {
  Gate gate;
  Serving serving(gate.model());
  Stream stream(serving.stub());
  ASSERT_TRUE(stream.Write(Asking("slow")));
  gate.WaitUntilRunning();
  ASSERT_TRUE(stream.Write(BadlyAsking("bad")));
  ExpectFailure("bad", grpc::StatusCode::INVALID_ARGUMENT, stream.Read());
  gate.Open();
  ExpectGoodFor("slow", stream.Read());
}

TEST(PredictStream, ABadRequestFailsAloneWithTheStoryThatPredictTells) {
  Serving serving;
  Stream stream(serving.stub());
  ASSERT_TRUE(stream.Write(Asking("before")));
  ExpectGoodFor("before", stream.Read());
  v1::PredictRequest stale = Asking("stale");
  stale.mutable_packed()->set_schema(0xab);
  ASSERT_TRUE(stream.Write(stale));
  const v1::PredictResponse answer = stream.Read();
  ExpectFailure("stale", grpc::StatusCode::FAILED_PRECONDITION, answer);
  EXPECT_EQ(answer.failure().message(),
            "packed.schema: expected 9f86d081884c7d65, got 00000000000000ab; ask GetModel for the "
            "schema being served");
  EXPECT_EQ(answer.failure().retry_pushback_ms(), 0U);
  ASSERT_TRUE(stream.Write(Asking("behind")));
  ExpectGoodFor("behind", stream.Read());
  stream.HalfClose();
  EXPECT_TRUE(stream.Finish().ok());
}

TEST(PredictStream, AMessageThatIsNoneFailsAloneAndHasNoId) {
  Serving serving;
  grpc::GenericStub stub(serving.channel());
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + seconds(30));
  grpc::CompletionQueue queue;
  const auto wait = [&queue] {
    void* tag;
    bool ok = false;
    EXPECT_TRUE(queue.Next(&tag, &ok));
    return ok;
  };
  const auto call = stub.PrepareCall(&context, "/embershard.v1.Predictor/PredictStream", &queue);
  call->StartCall(nullptr);
  ASSERT_TRUE(wait());
  const std::vector<std::pair<std::string, std::string>> sent = {
      {std::string(100, '\xff'), ""}, {Asking("good").SerializeAsString(), "good"}};
  for (const auto& [bytes, id] : sent) {
    const grpc::Slice slice(bytes);
    call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    ASSERT_TRUE(wait());
    grpc::ByteBuffer answer;
    call->Read(&answer, nullptr);
    ASSERT_TRUE(wait());
    v1::PredictResponse response;
    ASSERT_TRUE(
        grpc::SerializationTraits<v1::PredictResponse>::Deserialize(&answer, &response).ok());
    if (id.empty()) {
      ExpectFailure("", grpc::StatusCode::INVALID_ARGUMENT, response);
      EXPECT_EQ(response.failure().message(), "the message is not a PredictRequest");
    } else {
      ExpectGoodFor(id, response);
    }
  }
  call->WritesDone(nullptr);
  ASSERT_TRUE(wait());
  grpc::Status status;
  call->Finish(&status, nullptr);
  ASSERT_TRUE(wait());
  EXPECT_TRUE(status.ok()) << status.error_message();
  queue.Shutdown();
  EXPECT_EQ(Counted(&serving).Count(Outcome::kMalformed), 1U);
}

TEST(PredictStream, AHalfClosedStreamAnswersAllThatItRead) {
  Gate gate;
  Serving serving(gate.model());
  Stream stream(serving.stub());
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(stream.Write(Asking("r")));
  stream.HalfClose();
  gate.WaitUntilRunning();
  gate.Open();
  EXPECT_TRUE(stream.Finish().ok());
  EXPECT_EQ(stream.unread(), 20);
}

TEST(PredictStream, ACancelledStreamsRequestsLeaveTheQueueWhileTheModelIsBusy) {
  Gate gate;
  Serving serving(gate.model());
  Call other(serving.stub(), NamedMessage());
  gate.WaitUntilRunning();
  Stream stream(serving.stub());
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(stream.Write(Asking("r")));
  EXPECT_TRUE(WaitFor([&serving] { return Queued(&serving) == 5; }));
  stream.Cancel();
  EXPECT_EQ(stream.Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(WaitFor([&serving] { return Queued(&serving) == 0; }));
  EXPECT_TRUE(WaitFor([&serving] { return Counted(&serving).Count(Outcome::kAbandoned) == 5; }));
  EXPECT_EQ(Counted(&serving).in_flight, 1U);
  gate.Open();
  ExpectGood(other.Wait(), other.response());
}

TEST(PredictStream, DrainAnswersWhatWasReadEndsTheStreamAndRefusesNewOnes) {
  Gate gate;
  Serving serving(gate.model());
  Stream stream(serving.stub());
  Stream idle(serving.stub());
  ASSERT_TRUE(stream.Write(Asking("running")));
  gate.WaitUntilRunning();
  ASSERT_TRUE(stream.Write(Asking("waiting")));
  EXPECT_TRUE(WaitFor([&serving] { return Queued(&serving) == 1; }));
  std::thread drain([&serving] { serving.server()->Drain(seconds(60)); });
  const grpc::Status ended = idle.Finish();  // While the other's requests wait for the model.
  EXPECT_EQ(ended.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(ended.error_message(), "the server is shutting down");
  Stream late(serving.stub());
  EXPECT_EQ(late.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  gate.Open();
  ExpectGoodFor("running", stream.Read());
  ExpectGoodFor("waiting", stream.Read());
  EXPECT_EQ(stream.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(stream.unread(), 0);
  drain.join();
  EXPECT_EQ(Counted(&serving).in_flight, 0U);
}

TEST(PredictStream, DrainEndsStreamsThatTakeLongerThanItsTimeout) {
  Gate gate;
  Serving serving(gate.model());
  Stream stream(serving.stub());
  ASSERT_TRUE(stream.Write(Asking("r")));
  gate.WaitUntilRunning();
  std::thread drain([&serving] { serving.server()->Drain(milliseconds(0)); });
  EXPECT_FALSE(stream.Finish().ok());
  gate.Open();
  drain.join();
}

TEST(PredictStream, CountsEachRequestOnceAndDescribesSlowOnes) {
  Serving serving(std::make_unique<FakeModel>(), {}, {}, std::chrono::nanoseconds(1));
  Stream stream(serving.stub());
  ASSERT_TRUE(stream.Write(Asking("good")));
  const v1::PredictResponse good = stream.Read();
  EXPECT_EQ(Counted(&serving).open_streams, 1U);
  ASSERT_TRUE(stream.Write(BadlyAsking("bad")));
  ExpectFailure("bad", grpc::StatusCode::INVALID_ARGUMENT, stream.Read());
  const TelemetrySnapshot counted = Counted(&serving);
  EXPECT_EQ(counted.Count(Outcome::kOk), 1U);
  EXPECT_EQ(counted.Count(Outcome::kMalformed), 1U);
  EXPECT_EQ(counted.in_flight, 0U);
  EXPECT_EQ(counted.examples, 2U);
  EXPECT_EQ(counted.bytes_received,
            Asking("good").ByteSizeLong() + BadlyAsking("bad").ByteSizeLong());
  EXPECT_EQ(counted.bytes_sent, good.ByteSizeLong());
  const auto slow = serving.served()->telemetry().slow_log().Wait(std::chrono::nanoseconds(0));
  ASSERT_EQ(slow.size(), 2U);
  EXPECT_EQ(slow[0].request_id, "good");
  EXPECT_EQ(slow[0].dense_us, 22U);
  EXPECT_EQ(slow[1].request_id, "bad");
  EXPECT_EQ(slow[1].outcome, Outcome::kMalformed);
  EXPECT_TRUE(slow[1].peer.starts_with("ipv4:127.0.0.1:")) << slow[1].peer;
  stream.HalfClose();
  EXPECT_TRUE(stream.Finish().ok());
  EXPECT_TRUE(WaitFor([&serving] { return Counted(&serving).open_streams == 0; }));
}

// Clients of which every third leaves in the middle, and every fourth request is bad.
TEST(PredictStream, AnswersManyStreamsAtOnceWhileSomeAreCancelled) {
  Serving serving(std::make_unique<FakeModel>(), {},
                  {.default_timeout = std::chrono::minutes(1), .stream_in_flight = 16});
  constexpr int kStreams = 24;
  constexpr int kRequests = 200;
  std::atomic<int> good = 0;
  std::atomic<int> bad = 0;
  std::vector<std::thread> clients;
  for (int c = 0; c < kStreams; ++c) {
    clients.emplace_back([&, leaves = c % 3 == 2] {
      Stream stream(serving.stub());
      std::thread writer([&] {
        for (int i = 0; i < kRequests; ++i) {
          if (!stream.Write(i % 4 == 3 ? BadlyAsking("bad") : Asking("good"))) return;
        }
        if (!leaves) stream.HalfClose();
      });
      for (int i = 0; i < (leaves ? kRequests / 2 : kRequests); ++i) {
        const v1::PredictResponse answer = stream.Read();
        ++(answer.has_failure() ? bad : good);
        EXPECT_EQ(answer.request_id(), answer.has_failure() ? "bad" : "good");
      }
      if (leaves) stream.Cancel();
      writer.join();
      EXPECT_EQ(stream.Finish().error_code(),
                leaves ? grpc::StatusCode::CANCELLED : grpc::StatusCode::OK);
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(good + bad, 16 * kRequests + 8 * kRequests / 2);
  EXPECT_GE(good, 16 * kRequests * 3 / 4);
  EXPECT_TRUE(WaitFor([&serving] { return Counted(&serving).in_flight == 0; }));
  v1::PredictResponse response;
  ExpectGood(serving.Predict(NamedMessage(), &response), response);
}

}  // namespace
}  // namespace embershard::rpc
