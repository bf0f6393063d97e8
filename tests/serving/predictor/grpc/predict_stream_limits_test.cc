// Limits of a stream: requests in flight, unread answers, deadlines and the queue.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "grpc/embershard/predict_messages.h"
#include "grpc/predict/predict_stream.h"
#include "grpc/predict_stream_fixture.h"
#include "testing/wait_for.h"

namespace embershard::rpc {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(PredictStream, ReadsNoMoreThanItMayHaveInFlight) {
  Gate gate;
  Serving serving(gate.model(), {}, {.stream_in_flight = 3});
  Stream stream(serving.stub());
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(stream.Write(Asking("r")));
  EXPECT_TRUE(WaitFor([&serving] { return Counted(&serving).in_flight == 3; }));
  for (int i = 0; i < 20; ++i) {  // Each arrives after all eight on the same connection.
    v1::PredictResponse response;
    EXPECT_EQ(serving.Predict(BadlyAsking("b"), &response).error_code(),
              grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_LE(Counted(&serving).in_flight, 4U);  // The refused call may still count.
  }
  EXPECT_LE(Queued(&serving), 3U);
  gate.Open();
  for (int i = 0; i < 8; ++i) ExpectGoodFor("r", stream.Read());
}

TEST(PredictStream, AClientThatReadsNothingHoldsUpNobodyElseAndGetsAllWhenItReads) {
  Serving serving(std::make_unique<FakeModel>(), {}, {.stream_in_flight = 4});
  const auto channel = serving.NewChannel();
  const auto stub = v1::Predictor::NewStub(channel);
  Stream stream(stub.get());
  constexpr int kRequests = 20'000;
  const std::string id(kRequestIdBytesMax, 'x');  // Comes back in the answer.
  std::atomic<int> written = 0;
  std::thread writer([&] {
    for (; written < kRequests; ++written) {
      if (!stream.Write(Asking(id))) return;
    }
  });
  // The answers that fit the windows of both sides, and four more.
  EXPECT_TRUE(WaitFor([&serving] { return Counted(&serving).Count(Outcome::kOk) >= 4; }));
  for (int i = 0; i < 100; ++i) {
    v1::PredictResponse response;
    ExpectGood(serving.Predict(NamedMessage(), &response), response);
  }
  EXPECT_LT(written, kRequests);
  for (int i = 0; i < kRequests; ++i) ASSERT_EQ(stream.Read().request_id(), id) << i;
  writer.join();
  EXPECT_EQ(written, kRequests);
}

TEST(PredictStream, ClosesTheStreamOfAClientThatReadsNothingForTooLong) {
  Serving serving(std::make_unique<FakeModel>(), {},
                  {.stream_in_flight = 4, .stream_stalled = milliseconds(50)});
  Stream stream(serving.stub());
  const v1::PredictRequest large = Asking(std::string(kRequestIdBytesMax, 'x'));
  while (stream.Write(large)) {  // Until the stream has ended.
  }
  EXPECT_EQ(stream.Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(WaitFor([&serving] { return Counted(&serving).in_flight == 0; }));
}

// All at once these would be 512 MiB.
TEST(PredictStream, ReadsNoMoreThanItMayHold) {
  Gate gate;
  Serving serving(gate.model());
  Stream stream(serving.stub());
  const v1::PredictRequest large = Swollen(Asking("r"), 8 << 20);
  constexpr int kRequests = 64;
  std::thread writer([&] {
    for (int i = 0; i < kRequests; ++i) EXPECT_TRUE(stream.Write(large));
  });
  EXPECT_TRUE(WaitFor([&serving] { return Counted(&serving).in_flight == 2; }));
  for (int i = 0; i < 20; ++i) {
    v1::PredictResponse response;
    EXPECT_EQ(serving.Predict(BadlyAsking("b"), &response).error_code(),
              grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_LE(Counted(&serving).in_flight, 3U);  // The refused call may still count.
  }
  gate.Open();
  for (int i = 0; i < kRequests; ++i) ExpectGoodFor("r", stream.Read());
  writer.join();
}

TEST(PredictStream, AnIdThatIsTooLongComesBackCut) {
  Serving serving;
  Stream stream(serving.stub());
  ASSERT_TRUE(stream.Write(Asking(std::string(kRequestIdBytesMax + 1, 'x'))));
  const v1::PredictResponse answer = stream.Read();
  ExpectFailure(std::string(kRequestIdBytesMax, 'x'), grpc::StatusCode::INVALID_ARGUMENT, answer);
  EXPECT_EQ(answer.failure().message(), "request_id: expected at most 1024 bytes, got 1025");
}

TEST(PredictStream, AnswersARequestAtItsOwnDeadlineAndGoesOn) {
  Gate gate;
  Serving serving(gate.model());
  Call running(serving.stub(), NamedMessage());
  gate.WaitUntilRunning();
  Stream stream(serving.stub());
  v1::PredictRequest hurried = Asking("hurried");
  hurried.set_timeout_ms(300);
  v1::PredictRequest patient = Asking("patient");
  patient.set_timeout_ms(30000);
  ASSERT_TRUE(stream.Write(patient));
  ASSERT_TRUE(stream.Write(hurried));
  const v1::PredictResponse answer = stream.Read();
  ExpectFailure("hurried", grpc::StatusCode::DEADLINE_EXCEEDED, answer);
  EXPECT_EQ(answer.failure().message(), "the deadline passed while the request waited");
  gate.Open();
  ExpectGoodFor("patient", stream.Read());
  ExpectGood(running.Wait(), running.response());
}

TEST(PredictStream, GivesARequestWithoutATimeoutTheDefaultHoweverLongTheStreamMayLast) {
  Gate gate;
  Serving serving(gate.model(), {}, {.default_timeout = milliseconds(30)});
  Call running(serving.stub(), NamedMessage());
  gate.WaitUntilRunning();
  Stream stream(serving.stub());
  ASSERT_TRUE(stream.Write(Asking("r")));
  ExpectFailure("r", grpc::StatusCode::DEADLINE_EXCEEDED, stream.Read());
  gate.Open();
}

TEST(Predict, EndsAtTheEarlierOfItsDeadlines) {
  Gate gate;
  Serving serving(gate.model());
  Call running(serving.stub(), NamedMessage());
  gate.WaitUntilRunning();
  v1::PredictRequest message = NamedMessage();
  message.set_timeout_ms(300);
  Call own(serving.stub(), message, seconds(30));
  EXPECT_EQ(own.Wait().error_message(), "the deadline passed while the request waited");
  message.set_timeout_ms(30000);
  Call calls(serving.stub(), message, milliseconds(30));
  EXPECT_EQ(calls.Wait().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  gate.Open();
}

TEST(PredictStream, TellsARefusedRequestWhenToRetry) {
  Gate gate;
  EngineOptions options;
  options.batching.max_queued_examples = 2;
  Serving serving(gate.model(), options, {.retry_pushback = milliseconds(35)});
  Call running(serving.stub(), NamedMessage());
  gate.WaitUntilRunning();
  Stream stream(serving.stub());
  ASSERT_TRUE(stream.Write(Asking("waits")));
  ASSERT_TRUE(stream.Write(Asking("refused")));
  const v1::PredictResponse answer = stream.Read();
  ExpectFailure("refused", grpc::StatusCode::RESOURCE_EXHAUSTED, answer);
  EXPECT_EQ(answer.failure().retry_pushback_ms(), 35U);
  gate.Open();
  ExpectGoodFor("waits", stream.Read());
}

}  // namespace
}  // namespace embershard::rpc
