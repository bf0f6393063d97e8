// Clients that speak the protocol badly or not at all. The server goes on answering.

#include <arpa/inet.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <random>
#include <string>

#include "grpc/serving_fixture.h"

namespace embershard {
namespace {

// Connects, sends the bytes and hangs up, without reading what comes back.
void SendAndHangUp(int port, const std::string& bytes) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_GE(socket, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  // The server may have hung up first: that is an answer too.
  const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  EXPECT_TRUE(sent != 0 || bytes.empty());
  close(socket);
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
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
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

// UNIMPLEMENTED is what gRPC itself says to a body that is no message.
void ExpectAnswerToAnyBody(const grpc::Status& status) {
  const grpc::StatusCode code = status.error_code();
  EXPECT_TRUE(code == grpc::StatusCode::OK || code == grpc::StatusCode::INVALID_ARGUMENT ||
              code == grpc::StatusCode::NOT_FOUND ||
              code == grpc::StatusCode::FAILED_PRECONDITION ||
              code == grpc::StatusCode::UNIMPLEMENTED)
      << code << ": " << status.error_message();
}

TEST(HostileClient, MaySendABodyThatIsNoMessage) {
  Serving serving;
  EXPECT_EQ(PredictBytes(&serving, "\xff\xff\xff\xff").error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
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
}  // namespace embershard
