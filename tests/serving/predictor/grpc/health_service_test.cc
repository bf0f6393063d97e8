#include "grpc/health/health_service.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>

#include "grpc/raw_http2.h"
#include "testing/wait_for.h"

namespace embershard::rpc {
namespace {

using std::chrono::milliseconds;

const std::string kCheck = "/grpc.health.v1.Health/Check";
const std::string kWatch = "/grpc.health.v1.Health/Watch";
constexpr std::chrono::hours kNever{1};

// A server of nothing else.
class HealthServer {
 public:
  explicit HealthServer(const HealthLimits& limits) : health_(limits) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&health_);
    server_ = builder.BuildAndStart();
  }
  ~HealthServer() { server_->Shutdown(std::chrono::system_clock::now()); }

  int port() const { return port_; }
  HealthService& health() { return health_; }

 private:
  HealthService health_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// A call with an empty request, which means the whole server.
std::string EmptyCall(char stream, const std::string& path) {
  return BeginningOfACall(stream, path) + Frame(kData, 1, stream, std::string(5, '\0'));
}

bool Contains(Socket* socket, const std::string& text) {
  return socket->received().find(text) != std::string::npos;
}

TEST(HealthService, RefusesOneMoreCallOfAConnection) {
  HealthServer server({.connection_calls = 2});
  Socket client(server.port());
  client.Send(kHello + EmptyCall(1, kWatch) + EmptyCall(3, kWatch) + EmptyCall(5, kWatch));
  EXPECT_TRUE(WaitFor([&] {
    return Contains(&client, "health calls of one connection: expected at most 2 open");
  }));
  Socket other(server.port());
  other.Send(kHello + EmptyCall(1, kWatch));
  EXPECT_TRUE(WaitFor([&] { return other.Got(kData); }));
}

TEST(HealthService, RefusesOneMoreWatchAndStillChecks) {
  HealthServer server({.watches = 1});
  Socket first(server.port());
  first.Send(kHello + EmptyCall(1, kWatch));
  EXPECT_TRUE(WaitFor([&] { return first.Got(kData); }));
  Socket second(server.port());
  second.Send(kHello + EmptyCall(1, kWatch));
  EXPECT_TRUE(
      WaitFor([&] { return Contains(&second, "health watches: expected at most 1 open"); }));
  Socket third(server.port());
  third.Send(kHello + EmptyCall(1, kCheck));
  EXPECT_TRUE(WaitFor([&] { return third.Got(kData); }));
}

TEST(HealthService, CancelsTheOldestPendingCall) {
  HealthServer server({.pending_calls = 1, .request_timeout = kNever});
  Socket oldest(server.port());
  oldest.Send(kHello + BeginningOfACall(1, kCheck));
  EXPECT_TRUE(WaitFor([&] { return oldest.Got(kSettings); }));
  Socket newer(server.port());
  // The calls may arrive in either order: one of them ends.
  newer.Send(kHello + BeginningOfACall(1, kCheck));
  EXPECT_TRUE(WaitFor([&] { return oldest.Ended() || newer.Ended(); }));
  EXPECT_NE(oldest.Ended(), newer.Ended());
}

TEST(HealthService, CancelsACallWhoseRequestDoesNotArrive) {
  HealthServer server({.request_timeout = milliseconds(1)});
  Socket client(server.port());
  client.Send(kHello + BeginningOfACall(1, kCheck));
  EXPECT_TRUE(WaitFor([&] { return client.Ended(); }));
}

TEST(HealthService, CancelsACallWhoseAnswerIsNotRead) {
  HealthServer server({.request_timeout = kNever, .answer_timeout = milliseconds(1)});
  Socket client(server.port());
  const std::string no_window("\0\4\0\0\0\0", 6);  // INITIAL_WINDOW_SIZE = 0.
  client.Send(kPreface + Frame(kSettings, 0, 0, no_window) + EmptyCall(1, kCheck));
  EXPECT_TRUE(WaitFor([&] { return client.Ended(); }));
}

TEST(HealthService, TellsWatchersOfEachChange) {
  HealthServer server({});
  Socket client(server.port());
  client.Send(kHello + EmptyCall(1, kWatch));
  const std::string serving("\0\0\0\0\2\x08\1", 7);
  const std::string not_serving("\0\0\0\0\2\x08\2", 7);
  EXPECT_TRUE(WaitFor([&] { return Contains(&client, serving); }));
  server.health().SetServing("", false);
  EXPECT_TRUE(WaitFor([&] { return Contains(&client, not_serving); }));
  EXPECT_FALSE(client.Ended());
}

}  // namespace
}  // namespace embershard::rpc
