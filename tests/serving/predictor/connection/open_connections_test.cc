#include "grpc/connection/open_connections.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "connection/connected.h"
#include "testing/wait_for.h"

namespace embershard::rpc {
namespace {

using std::chrono::milliseconds;

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
  EXPECT_FALSE(open.Add(other, now + milliseconds(9)));  // Not rescanned yet.
  EXPECT_TRUE(open.Add(other, now + milliseconds(10)));
  EXPECT_FALSE(open.Add(NewSocket(), now + milliseconds(20)));
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

TEST(OpenConnections, ResetsThoseThatFloodWithoutAuthentication) {
  for (const int family : {AF_INET, AF_INET6}) {
    Taken taken;
    OpenConnections open(0);
    open.Start(taken.Take(), /*reset_flooding=*/true);
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
  open.Start(taken.Take(), /*reset_flooding=*/true);
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

TEST(OpenConnections, ResetsThoseThatFloodWhileTheyWait) {
  Taken taken;
  OpenConnections open(0);
  open.Start(taken.Take(), /*reset_flooding=*/true);
  Connected flooding = NewConnection();
  open.Admit(0, std::move(flooding.server), Clock::now());
  FloodUntilClosed(flooding, &open);
  Connected waiting = NewConnection(), quiet = NewConnection();
  Send(waiting, OpenConnections::kUnauthenticatedBytes + 1);
  const int quiet_number = quiet.server.descriptor();
  open.Admit(0, std::move(waiting.server), Clock::now());
  open.Admit(0, std::move(quiet.server), Clock::now());
  EXPECT_TRUE(WaitFor([&] { return IsClosed(waiting); }));
  EXPECT_TRUE(WaitFor([&] { return taken.size() == 2; }));
  EXPECT_EQ(taken.descriptor(1), quiet_number);
}

TEST(OpenConnections, DropsThoseThatLeaveWhileTheyWait) {
  Taken taken;
  OpenConnections open(0);
  open.Start(taken.Take(), /*reset_flooding=*/true);
  Connected flooding = NewConnection();
  open.Admit(0, std::move(flooding.server), Clock::now());
  FloodUntilClosed(flooding, &open);
  Connected left = NewConnection(), stays = NewConnection();
  left.client = File();
  const int stays_number = stays.server.descriptor();
  open.Admit(0, std::move(left.server), Clock::now());
  open.Admit(0, std::move(stays.server), Clock::now());
  EXPECT_TRUE(WaitFor([&] { return taken.size() == 2; }));
  EXPECT_EQ(taken.descriptor(1), stays_number);
}

TEST(OpenConnections, StopClosesWaitingConnections) {
  Taken taken;
  OpenConnections open(0);
  open.Start(taken.Take(), /*reset_flooding=*/true);
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

}  // namespace
}  // namespace embershard::rpc
