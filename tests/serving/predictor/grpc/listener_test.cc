#include "grpc/connection/listener.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <string>
#include <vector>

#include "grpc/serving_fixture.h"
#include "testing/wait_for.h"

namespace embershard::rpc {
namespace {

File NewSocket() { return File(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

bool Connect(const File& from, int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return connect(from.descriptor(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
}

// Lets this process open no more than `count` files beside those that are open.
class FewFiles {
 public:
  explicit FewFiles(rlim_t count) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const File next = NewSocket();
    const rlimit few = {static_cast<rlim_t>(next.descriptor()) + count, before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  }
  ~FewFiles() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_;
};

// Counts the connections that it takes, and closes them.
class Counting {
 public:
  Result<std::unique_ptr<Listener>> Listen(const std::string& host, int port) {
    auto listener = Listener::Open(host, port);
    if (listener.ok()) {
      (*listener)->Start([this](int, File) { ++count_; });
    }
    return listener;
  }
  bool WaitFor(int count) {
    return embershard::WaitFor([this, count] { return count_ >= count; });
  }

 private:
  std::atomic<int> count_ = 0;
};

TEST(Listener, TakesConnections) {
  Counting counting;
  const auto listener = counting.Listen("127.0.0.1", 0);
  ASSERT_TRUE(listener.ok()) << listener.status().message();
  const File first = NewSocket();
  const File second = NewSocket();
  EXPECT_TRUE(Connect(first, (*listener)->port()));
  EXPECT_TRUE(Connect(second, (*listener)->port()));
  EXPECT_TRUE(counting.WaitFor(2));
}

TEST(Listener, ListensOnNamesAndAddressesWithAndWithoutBrackets) {
  for (const char* host : {"localhost", "0.0.0.0", "::", "[::1]", "::1"}) {
    Counting counting;
    const auto listener = counting.Listen(host, 0);
    if (!listener.ok() && host[0] != 'l' && host[0] != '0') continue;  // Without IPv6.
    ASSERT_TRUE(listener.ok()) << listener.status().message();
    EXPECT_GT((*listener)->port(), 0) << host;
  }
}

TEST(Listener, SaysWhyItCannotListen) {
  const auto nowhere = Listener::Open("192.0.2.1", 0);
  EXPECT_EQ(nowhere.status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(nowhere.status().message(), "cannot listen on 192.0.2.1:0: no address of this machine");
  EXPECT_EQ(Listener::Open("no such name", 0).status().code(), StatusCode::kUnavailable);
}

TEST(Listener, RefusesAPortThatIsInUseAtOneOfItsAddresses) {
  Counting counting;
  const auto taken = counting.Listen("127.0.0.1", 0);
  ASSERT_TRUE(taken.ok());
  const int port = (*taken)->port();
  const auto second = Listener::Open("localhost", port);
  EXPECT_EQ(second.status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(second.status().message(),
            "cannot listen on localhost:" + std::to_string(port) + ": in use");
}

TEST(Listener, ClosesThePortWithItself) {
  int port = 0;
  {
    Counting counting;
    const auto listener = counting.Listen("127.0.0.1", 0);
    ASSERT_TRUE(listener.ok());
    port = (*listener)->port();
  }
  EXPECT_FALSE(Connect(NewSocket(), port));
}

TEST(Listener, GoesOnWhenFilesHadRunOut) {
  Serving serving;
  v1::PredictResponse response;
  ExpectGood(serving.Predict(NamedMessage(), &response), response);
  {
    const FewFiles few(20);
    std::vector<File> sockets;
    while (sockets.empty() || sockets.back().is_open()) sockets.push_back(NewSocket());
    // Drops the last one, which did not open, and makes room for three more.
    sockets.resize(sockets.size() - 4);
    for (const File& socket : sockets) EXPECT_TRUE(Connect(socket, serving.server()->port()));
    EXPECT_TRUE(WaitFor([] { return !NewSocket().is_open(); }));
    ExpectGood(serving.Predict(NamedMessage(), &response), response);
  }
  v1::Predictor::Stub later(serving.NewChannel());
  Call call(&later, NamedMessage());
  ExpectGood(call.Wait(), call.response());
}

}  // namespace
}  // namespace embershard::rpc
