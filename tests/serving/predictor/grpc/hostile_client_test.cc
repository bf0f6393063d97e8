// Clients that speak the protocol badly or not at all. The server goes on answering.

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <random>
#include <string>
#include <vector>

#include "grpc/raw_http2.h"
#include "grpc/serving_fixture.h"
#include "testing/wait_for.h"

namespace embershard::rpc {
namespace {

// Sends bytes, and does not read the answer.
void SendAndHangUp(int port, const std::string& bytes) { Socket(port).Send(bytes); }

// The beginning of a call. The message announces 60 MiB, but only 60,000 bytes follow.
std::string BeginningOfALargeMessage() {
  std::string bytes = kPreface + Frame(kSettings, 0, 0, "") + BeginningOfACall(1, kPredict);
  bytes += Frame(kData, 0, 1, std::string("\0\x03\xc0\0\0", 5));
  for (int i = 0; i < 4; ++i) bytes += Frame(kData, 0, 1, std::string(15000, '\0'));
  return bytes;
}

std::string RandomBytes(std::mt19937* random, size_t size) {
  std::uniform_int_distribution<int> byte(0, 255);
  std::string bytes(size, '\0');
  for (char& one : bytes) one = static_cast<char>(byte(*random));
  return bytes;
}

// Calls Predict with a body that may be no message.
grpc::Status PredictBytes(Serving* serving, const std::string& bytes) {
  const grpc::Slice slice(bytes);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer answer;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  std::promise<grpc::Status> done;
  grpc::GenericStub stub(serving->channel());
  stub.UnaryCall(&context, "/embershard.v1.Predictor/Predict", grpc::StubOptions(), &request,
                 &answer, [&done](grpc::Status status) { done.set_value(std::move(status)); });
  return done.get_future().get();
}

void ExpectStillAnswers(Serving* serving) {
  v1::PredictResponse response;
  ExpectGood(serving->Predict(NamedMessage(), &response), response);
}

TEST(HostileClient, MaySendRandomBytes) {
  Serving serving;
  std::mt19937 random(7);
  for (const size_t size : {0U, 1U, 9U, 24U, 100U, 5000U}) {
    SendAndHangUp(serving.server()->port(), RandomBytes(&random, size));
    ExpectStillAnswers(&serving);
  }
}

TEST(HostileClient, MayBeginToSpeakHttp2AndHangUp) {
  Serving serving;
  std::mt19937 random(8);
  const std::string preface = kPreface;
  const std::string settings(std::string("\0\0\0\4\0\0\0\0\0", 9));
  // A frame of headers of 16 MiB less one byte, of which none comes.
  const std::string headers("\xff\xff\xff\1\4\0\0\0\1", 9);
  for (const std::string& bytes :
       {preface.substr(0, 10), preface, preface + settings, preface + settings + headers,
        preface + settings + RandomBytes(&random, 1000)}) {
    SendAndHangUp(serving.server()->port(), bytes);
    ExpectStillAnswers(&serving);
  }
}

void ExpectAnswerToAnyBody(const grpc::Status& status) {
  const grpc::StatusCode code = status.error_code();
  EXPECT_TRUE(code == grpc::StatusCode::OK || code == grpc::StatusCode::INVALID_ARGUMENT ||
              code == grpc::StatusCode::NOT_FOUND || code == grpc::StatusCode::FAILED_PRECONDITION)
      << code << ": " << status.error_message();
}

TEST(HostileClient, MaySendABodyThatIsNoMessage) {
  Serving serving;
  const grpc::Status status = PredictBytes(&serving, "\xff\xff\xff\xff");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(), "the message is not a PredictRequest");
  ExpectStillAnswers(&serving);
}

TEST(HostileClient, MaySendTextThatIsNotUtf8WithoutFillingTheLog) {
  Serving serving;
  ::testing::internal::CaptureStderr();
  v1::PredictRequest message = NamedMessage();
  message.set_label("label");
  std::string bytes = message.SerializeAsString();
  bytes.replace(bytes.find("label"), 2, "\xff\xfe");
  EXPECT_FALSE(PredictBytes(&serving, bytes).ok());
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  ExpectStillAnswers(&serving);
}

TEST(HostileClient, MaySendHalfAMessage) {
  Serving serving;
  const std::string whole = PackedMessage().SerializeAsString();
  for (size_t size = 0; size < whole.size(); ++size) {
    const grpc::Status status = PredictBytes(&serving, whole.substr(0, size));
    EXPECT_FALSE(status.ok()) << "the first " << size << " bytes";
    ExpectAnswerToAnyBody(status);
  }
  EXPECT_TRUE(PredictBytes(&serving, whole).ok());
}

TEST(HostileClient, MayHoldBackTheEndsOfManyMessagesUntilMemoryIsShort) {
  Serving serving(std::make_unique<FakeModel>(), {}, {.max_receiving_bytes = 1 << 20});
  std::vector<std::unique_ptr<Socket>> sockets;
  for (int i = 0; i < 64; ++i) {
    sockets.push_back(std::make_unique<Socket>(serving.server()->port()));
    sockets.back()->Send(BeginningOfALargeMessage());
  }
  EXPECT_TRUE(WaitFor([&sockets] {
    return std::any_of(sockets.begin(), sockets.end(),
                       [](const auto& socket) { return socket->Ended(); });
  }));
  // While memory is short gRPC may turn any client away with UNAVAILABLE, and clients try again.
  sockets.clear();
  grpc::Status status;
  v1::PredictResponse response;
  EXPECT_TRUE(WaitFor([&] {
    status = serving.Predict(NamedMessage(), &response);
    return status.error_code() != grpc::StatusCode::UNAVAILABLE;
  }));
  ExpectGood(status, response);
}

TEST(HostileClient, MayStayWithoutDelayingTheServersEnd) {
  Serving serving;
  Socket silent(serving.server()->port());
  silent.Send("PRI");
  // Half a call, then a watch. The watch's answer shows that the half call has arrived.
  Socket busy(serving.server()->port());
  constexpr char kEndOfStream = 1;
  busy.Send(BeginningOfALargeMessage() + BeginningOfACall(3, "/grpc.health.v1.Health/Watch") +
            Frame(kData, kEndOfStream, 3, std::string(5, '\0')));
  EXPECT_TRUE(WaitFor([&busy] { return busy.Got(kData); }));
  // The test would exceed its time limit if these connections delayed Drain().
  serving.server()->Drain(std::chrono::hours(1));
}

TEST(HostileClient, IsClosedAfterAWhileWithoutACall) {
  Serving serving(std::make_unique<FakeModel>(), {},
                  {.connections = {.idle = std::chrono::milliseconds(50)}});
  Socket idle(serving.server()->port());
  idle.Send(kPreface + Frame(kSettings, 0, 0, ""));
  EXPECT_TRUE(WaitFor([&idle] { return idle.HasHungUp(); }));
  ExpectStillAnswers(&serving);
}

TEST(HostileClient, MayChangeAnyByteOfAMessage) {
  Serving serving;
  std::mt19937 random(9);
  for (const std::string& whole :
       {PackedMessage().SerializeAsString(), NamedMessage().SerializeAsString()}) {
    for (int round = 0; round < 500; ++round) {
      std::string changed = whole;
      changed[random() % changed.size()] = static_cast<char>(random());
      ExpectAnswerToAnyBody(PredictBytes(&serving, changed));
    }
  }
  ExpectStillAnswers(&serving);
}

}  // namespace
}  // namespace embershard::rpc
