#include "grpc/connection/connection_limits.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "grpc/connection/open_connections.h"
#include "grpc/raw_http2.h"
#include "grpc/serving_fixture.h"
#include "testing/wait_for.h"

namespace embershard {
namespace {

using grpc::StatusCode;
using std::chrono::milliseconds;

std::unique_ptr<Serving> ServingWith(const ConnectionLimits& limits) {
  GrpcServerOptions options;
  options.connections = limits;
  return std::make_unique<Serving>(std::make_unique<FakeModel>(), EngineOptions(), options);
}

const std::string kHello = kPreface + Frame(kSettings, 0, 0, "");

File NewSocket() { return File(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

TEST(OpenConnections, CountsUntilTheDescriptorIsClosed) {
  OpenConnections open(2);
  const Clock::time_point now = Clock::now();
  File first = NewSocket();
  const File second = NewSocket();
  EXPECT_TRUE(open.Add(first, now));
  EXPECT_TRUE(open.Add(second, now));
  EXPECT_FALSE(open.Add(NewSocket(), now));
  // Closed, and its number taken by another file that was not counted.
  const int number = first.descriptor();
  first = File();
  const File other = NewSocket();
  EXPECT_EQ(other.descriptor(), number);
  EXPECT_FALSE(open.Add(other, now + milliseconds(9)));  // Not looked at again yet.
  EXPECT_TRUE(open.Add(other, now + milliseconds(10)));
  EXPECT_FALSE(open.Add(NewSocket(), now + milliseconds(20)));
}

// Two ends of a TCP connection: the client's, and the one that a server accepted.
struct Connected {
  File client;
  File server;
};

// From a loopback address, to a port of IPv4, or of IPv6 that takes IPv4.
Connected NewConnection(in_addr_t from = INADDR_LOOPBACK, int listening_family = AF_INET) {
  const File listening(socket(listening_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  sockaddr_in6 mapped = {};
  mapped.sin6_family = AF_INET6;
  inet_pton(AF_INET6, "::ffff:127.0.0.1", &mapped.sin6_addr);
  const bool is_mapped = listening_family == AF_INET6;
  auto* const any =
      is_mapped ? reinterpret_cast<sockaddr*>(&mapped) : reinterpret_cast<sockaddr*>(&address);
  socklen_t size = is_mapped ? sizeof(mapped) : sizeof(address);
  EXPECT_EQ(bind(listening.descriptor(), any, size), 0);
  EXPECT_EQ(listen(listening.descriptor(), 1), 0);
  EXPECT_EQ(getsockname(listening.descriptor(), any, &size), 0);
  if (is_mapped) address.sin_port = mapped.sin6_port;
  Connected both = {.client = NewSocket(), .server = File()};
  sockaddr_in source = {};
  source.sin_family = AF_INET;
  source.sin_addr.s_addr = htonl(from);
  EXPECT_EQ(bind(both.client.descriptor(), reinterpret_cast<sockaddr*>(&source), sizeof(source)),
            0);
  EXPECT_EQ(
      connect(both.client.descriptor(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  both.server = File(accept(listening.descriptor(), nullptr, nullptr));
  return both;
}

// Of the client's end, as gRPC names it.
std::string PeerName(const Connected& connection) {
  sockaddr_in address = {};
  socklen_t size = sizeof(address);
  getsockname(connection.client.descriptor(), reinterpret_cast<sockaddr*>(&address), &size);
  return "ipv4:127.0.0.1:" + std::to_string(ntohs(address.sin_port));
}

void Send(const Connected& connection, size_t bytes) {
  const std::string some(bytes, 'x');
  EXPECT_EQ(send(connection.client.descriptor(), some.data(), some.size(), 0),
            static_cast<ssize_t>(bytes));
}

bool IsClosed(const Connected& connection) {
  char byte;
  return recv(connection.client.descriptor(), &byte, 1, MSG_DONTWAIT) == 0;
}

// What was given away, and on which thread. Ends behind what it takes from.
class Taken {
 public:
  OpenConnections::Take Take() {
    return [this](int, File connection) {
      const std::lock_guard<std::mutex> lock(mutex_);
      connections_.push_back(std::move(connection));
      threads_.push_back(std::this_thread::get_id());
    };
  }
  size_t size() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return connections_.size();
  }
  int descriptor(size_t at) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return connections_.at(at).descriptor();
  }
  bool OnThisThread(size_t at) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return threads_.at(at) == std::this_thread::get_id();
  }

 private:
  std::mutex mutex_;
  std::vector<File> connections_;
  std::vector<std::thread::id> threads_;
};

// Sends enough on the connection, and counts enough calls, for it to be closed.
void FloodUntilClosed(const Connected& connection, OpenConnections* open) {
  Send(connection, OpenConnections::kUnauthenticatedBytes + 1);
  EXPECT_TRUE(WaitFor([&] {
    for (uint64_t i = 0; i <= OpenConnections::kFloodCalls; ++i) open->CountUnauthenticatedCall();
    return IsClosed(connection);
  }));
}

TEST(OpenConnections, ClosesThoseThatFloodWithoutAuthentication) {
  for (const int family : {AF_INET, AF_INET6}) {
    Taken taken;
    OpenConnections open(0);
    open.Start(taken.Take(), /*close_flooding=*/true);
    Connected flooding = NewConnection(INADDR_LOOPBACK, family);
    Connected authenticated = NewConnection(INADDR_LOOPBACK, family);
    Connected quiet = NewConnection(INADDR_LOOPBACK, family);
    for (Connected* each : {&flooding, &authenticated, &quiet}) {
      open.Admit(0, std::move(each->server), Clock::now());
    }
    open.SetAuthenticated(PeerName(authenticated));
    Send(authenticated, OpenConnections::kUnauthenticatedBytes + 1);
    Send(quiet, OpenConnections::kUnauthenticatedBytes);
    FloodUntilClosed(flooding, &open);
    EXPECT_FALSE(IsClosed(authenticated));
    EXPECT_FALSE(IsClosed(quiet));
    open.Stop();
  }
}

TEST(OpenConnections, WaitInTheirOrderIfTheirAddressFloods) {
  Taken taken;
  OpenConnections open(0);
  open.Start(taken.Take(), /*close_flooding=*/true);
  Connected flooding = NewConnection();
  open.Admit(0, std::move(flooding.server), Clock::now());
  EXPECT_TRUE(taken.OnThisThread(0));
  FloodUntilClosed(flooding, &open);
  Connected first = NewConnection(), second = NewConnection();
  Connected other = NewConnection(INADDR_LOOPBACK + 1);
  const int first_number = first.server.descriptor(), second_number = second.server.descriptor();
  Send(second, OpenConnections::kUnauthenticatedBytes);
  open.Admit(0, std::move(first.server), Clock::now());
  open.Admit(0, std::move(second.server), Clock::now());
  open.Admit(0, std::move(other.server), Clock::now());
  EXPECT_TRUE(WaitFor([&] { return taken.size() == 4; }));
  open.Stop();
  std::vector<int> later;
  for (size_t at = 1; at < 4; ++at) {
    if (!taken.OnThisThread(at)) later.push_back(taken.descriptor(at));
  }
  EXPECT_EQ(later, (std::vector<int>{first_number, second_number}));
  EXPECT_FALSE(IsClosed(second));
}

TEST(OpenConnections, CloseThoseThatWaitWhenTheyStop) {
  Taken taken;
  OpenConnections open(0);
  open.Start(taken.Take(), /*close_flooding=*/true);
  Connected flooding = NewConnection();
  open.Admit(0, std::move(flooding.server), Clock::now());
  FloodUntilClosed(flooding, &open);
  std::vector<Connected> waiting;
  for (int i = 0; i < 20; ++i) waiting.push_back(NewConnection());
  for (Connected& each : waiting) open.Admit(0, std::move(each.server), Clock::now());
  open.Stop();
  const auto closed = std::count_if(waiting.begin(), waiting.end(), IsClosed);
  EXPECT_EQ(taken.size() + static_cast<size_t>(closed), 1 + waiting.size());
}

TEST(OpenConnections, AreAnyNumberWhereThatIsZero) {
  OpenConnections open(0);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(open.Add(NewSocket(), Clock::now()));
  EXPECT_EQ(open.refused(), 0U);
}

TEST(OpenConnections, CountsTheRefusedAndSaysSoOnceAMinute) {
  std::vector<std::string> said;
  OpenConnections open(1, [&said](const std::string& words) { said.push_back(words); });
  const Clock::time_point now = Clock::now();
  const File first = NewSocket();
  EXPECT_TRUE(open.Add(first, now));
  EXPECT_TRUE(said.empty());
  for (int second = 0; second < 60; ++second) {
    EXPECT_FALSE(open.Add(NewSocket(), now + std::chrono::seconds(second)));
  }
  EXPECT_EQ(open.refused(), 60U);
  EXPECT_FALSE(open.Add(NewSocket(), now + std::chrono::seconds(60)));
  const std::string words =
      "connections are refused: expected at most 1 open (max_connections), refused so far: ";
  EXPECT_EQ(said, (std::vector<std::string>{words + "1", words + "61"}));
}

TEST(ConnectionLimits, OneConnectionTooManyIsHungUpOnUntilAnotherEnds) {
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
    EXPECT_EQ(refused.Wait().error_code(), StatusCode::UNAVAILABLE);
    ExpectGood(serving->Predict(NamedMessage(), &response), response);
  }
  EXPECT_TRUE(WaitFor([&serving] {
    v1::Predictor::Stub third(serving->NewChannel());
    return Call(&third, NamedMessage()).Wait().ok();
  }));
}

TEST(ConnectionLimits, ACallTooManyWaitsAtItsClient) {
  Gate gate;
  GrpcServerOptions options;
  options.connections.max_calls = 2;
  Serving serving(gate.model(), {}, options);
  Call running(serving.stub(), NamedMessage());
  gate.WaitUntilRunning();
  Call waiting(serving.stub(), NamedMessage());
  EXPECT_TRUE(WaitFor([&serving] { return serving.engine()->Snapshot().queued.examples > 0; }));
  Call late(serving.stub(), NamedMessage(), milliseconds(50));
  EXPECT_EQ(late.Wait().error_code(), StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(serving.engine()->telemetry().Read().in_flight, 2U);  // It never came.
  Call patient(serving.stub(), NamedMessage());
  gate.Open();
  ExpectGood(running.Wait(), running.response());
  ExpectGood(waiting.Wait(), waiting.response());
  ExpectGood(patient.Wait(), patient.response());
}

TEST(ConnectionLimits, WhoOpensMoreCallsThanToldIsHungUpOn) {
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

TEST(ConnectionLimits, WhoAsksTooOftenIsHungUpOnWithTheReason) {
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

TEST(ConnectionLimits, WhoHasACallOpenAndDoesNotAnswerIsHungUpOn) {
  const auto serving =
      ServingWith({.keepalive = milliseconds(30), .keepalive_timeout = milliseconds(30)});
  Socket silent(serving->server()->port());
  silent.Send(kHello + BeginningOfACall(1, kPredict));
  EXPECT_TRUE(WaitFor([&silent] { return silent.HasHungUp(); }));
}

TEST(ConnectionLimits, AConnectionOfAgeIsToldToGoAndTheCallOnItEnds) {
  Gate gate;
  GrpcServerOptions options;
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

}  // namespace
}  // namespace embershard
