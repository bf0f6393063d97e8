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
  // The first is closed, and another file that was not counted takes its number.
  const int number = first.descriptor();
  first = File();
  const File other = NewSocket();
  EXPECT_EQ(other.descriptor(), number);
  EXPECT_FALSE(open.Add(other, now + milliseconds(9)));  // Not rescanned yet.
  EXPECT_TRUE(open.Add(other, now + milliseconds(10)));
  EXPECT_FALSE(open.Add(NewSocket(), now + milliseconds(20)));
}

constexpr size_t kBudget = OpenConnections::kStrangerBytes;
constexpr size_t kSmall = OpenConnections::kSmallBytes;

// Strangers have budgets. Keeps the connections that were handed over.
class Strangers : public ::testing::Test {
 protected:
  Strangers() {
    const auto take = [this](int, File connection) {
      const std::lock_guard<std::mutex> lock(mutex_);
      taken_.push_back({std::move(connection), std::this_thread::get_id()});
    };
    open_.Start(take, /*bound_strangers=*/true);
    flooding_ = Connect();
  }

  struct Taken {
    File connection;
    std::thread::id thread;
  };
  size_t num_taken() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return taken_.size();
  }
  int descriptor(size_t at) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return taken_.at(at).connection.descriptor();
  }

  void Admit(Connected* connection) { open_.Admit(0, std::move(connection->server), Clock::now()); }

  // A client from a network of its own, whose connection has been handed over.
  Connected Connect(int family = AF_INET) {
    Connected connection = NewConnection(INADDR_LOOPBACK + networks_++, family);
    Admit(&connection);
    return connection;
  }

  // Sends bytes and reads them at the other end, as gRPC would. Ends when it is reset.
  void SendAndRead(const Connected& from, size_t bytes) {
    constexpr size_t kAtOnce = 4096;
    const std::string name = PeerName(from);
    size_t number = 0;
    while (PeerOf(descriptor(number)).name != name) ++number;
    const int to = descriptor(number);
    char read[kAtOnce] = {};
    for (size_t sent = 0; sent < bytes;) {
      const size_t some = std::min(kAtOnce, bytes - sent);
      if (send(from.client.descriptor(), read, some, MSG_NOSIGNAL) < 0) return;
      for (size_t left = some; left > 0;) {
        const ssize_t received = recv(to, read, left, 0);
        if (received <= 0) return;
        left -= static_cast<size_t>(received);
      }
      sent += some;
    }
  }

  void SendAndReadUntilClosed(const Connected& from, size_t bytes) {
    SendAndRead(from, bytes);
    EXPECT_TRUE(WaitFor([&] { return IsClosed(from); }));
  }

  // Sends too much from the first network, which counts as flooding from then on.
  void Flood() { SendAndReadUntilClosed(flooding_, kBudget + 1); }

  // Sends too much while it waits, and is reset.
  void FloodWaiting(Connected* connection) {
    Send(*connection, kSmall + 1);
    Admit(connection);
    EXPECT_TRUE(WaitFor([&] { return IsClosed(*connection); }));
  }

  std::vector<std::string> said_;
  std::mutex mutex_;
  std::vector<Taken> taken_;
  in_addr_t networks_ = 0;
  // Destroyed before the members that its callbacks use.
  OpenConnections open_{0, [this](const std::string& words) { said_.push_back(words); }};
  Connected flooding_;
};

TEST_F(Strangers, AreResetOldestFirstBeyondTheirBudget) {
  for (const int family : {AF_INET, AF_INET6}) {
    const Connected oldest = Connect(family), second = Connect(family), last = Connect(family);
    SendAndRead(last, kBudget / 2);
    SendAndRead(second, kBudget / 4);
    SendAndReadUntilClosed(oldest, kBudget / 4 + 1);
    SendAndRead(last, kBudget / 4);  // Bytes of a connection that was reset no longer count.
    SendAndRead(last, 1);
    EXPECT_TRUE(WaitFor([&] { return IsClosed(second); }));
    EXPECT_FALSE(IsClosed(last));
    SendAndReadUntilClosed(last, kBudget / 4);
  }
  EXPECT_EQ(open_.strangers_reset(), 6U);
}

TEST_F(Strangers, ThatHaveSentLittleAreResetLast) {
  const Connected probe = Connect(), large = Connect();
  SendAndRead(probe, kSmall);
  SendAndReadUntilClosed(large, kBudget);
  EXPECT_FALSE(IsClosed(probe));
  std::vector<Connected> small;
  for (size_t i = 0; i < kBudget / kSmall; ++i) {
    small.push_back(Connect());
    SendAndRead(small.back(), kSmall);
  }
  EXPECT_TRUE(WaitFor([&] { return IsClosed(probe); }));
  EXPECT_FALSE(IsClosed(small.back()));
}

TEST_F(Strangers, MaySendAnythingOnceAuthenticated) {
  const Connected good = Connect();
  SendAndRead(good, kBudget / 2);
  open_.SetAuthenticated(PeerName(good));
  SendAndRead(good, 2 * kBudget);
  Flood();
  EXPECT_FALSE(IsClosed(good));
  EXPECT_EQ(open_.strangers_reset(), 1U);
}

TEST_F(Strangers, AreSparedUntilOneThatShowedATokenIsKnown) {
  const Connected good = Connect(), other = Connect();
  open_.ExpectAuthenticated(Clock::now() + std::chrono::hours(1));
  SendAndRead(good, kBudget + 1);
  EXPECT_EQ(open_.strangers_reset(), 0U);
  open_.SetAuthenticated(PeerName(good));
  SendAndReadUntilClosed(other, kBudget + 1);
  EXPECT_FALSE(IsClosed(good));
}

TEST_F(Strangers, AreSparedForATimeAtMost) {
  const Connected large = Connect();
  open_.ExpectAuthenticated(Clock::now() - OpenConnections::kExpectationMax);
  SendAndReadUntilClosed(large, kBudget + 1);
}

TEST_F(Strangers, AreNotSparedLongerByFurtherTokens) {
  const Connected large = Connect();
  SendAndRead(large, kBudget + 1);
  EXPECT_TRUE(WaitFor([&] {
    open_.ExpectAuthenticated(Clock::now());
    return IsClosed(large);
  }));
}

TEST_F(Strangers, AreNotChargedForWhatNobodyHasRead) {
  const Connected waiting = Connect(), filling = Connect();
  Send(waiting, kSmall + 1);
  // If unread bytes counted, `waiting` would be closed first: it is older.
  SendAndReadUntilClosed(filling, kBudget + 1);
  EXPECT_FALSE(IsClosed(waiting));
}

TEST_F(Strangers, ThatHaveClosedCountNoMore) {
  const Connected closing = Connect(), first = Connect(), second = Connect();
  SendAndRead(closing, kSmall);
  SendAndRead(first, kBudget / 2);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    taken_.at(1).connection = File();
  }
  SendAndReadUntilClosed(first, kBudget / 2 + 1);
  SendAndRead(second, kBudget - 1);
  Flood();
  EXPECT_FALSE(IsClosed(second));
  EXPECT_EQ(open_.strangers_reset(), 2U);
}

TEST_F(Strangers, AreReportedOnceAMinute) {
  Flood();
  SendAndReadUntilClosed(Connect(), kBudget + 1);
  open_.Stop();
  EXPECT_EQ(said_, (std::vector<std::string>{
                       "connections without an authenticated call are reset, the oldest first: "
                       "expected at most 256 KiB from all of them together; reset so far: 1"}));
}

TEST_F(Strangers, WaitInTheirOrderIfTheirNetworkFloods) {
  Flood();
  Connected first = NewConnection(), second = NewConnection();
  const int first_number = first.server.descriptor(), second_number = second.server.descriptor();
  Send(second, kSmall);
  Admit(&first);
  Admit(&second);
  Connect();  // Comes from another network.
  EXPECT_TRUE(WaitFor([&] { return num_taken() == 4; }));
  open_.Stop();
  std::vector<int> later;
  for (const Taken& taken : taken_) {
    if (taken.thread != std::this_thread::get_id()) later.push_back(taken.connection.descriptor());
  }
  EXPECT_EQ(later, (std::vector<int>{first_number, second_number}));
  EXPECT_FALSE(IsClosed(second));
}

TEST_F(Strangers, OfNetworksThatFloodMaySendLittle) {
  Connected same = NewConnection(), other = NewConnection(INADDR_LOOPBACK + 100);
  Connected waiting = NewConnection(), quiet = NewConnection();
  Admit(&same);
  Admit(&other);
  Flood();
  SendAndRead(other, kSmall + 1);
  SendAndReadUntilClosed(same, kSmall + 1);
  FloodWaiting(&waiting);
  const int quiet_number = quiet.server.descriptor();
  Admit(&quiet);
  EXPECT_TRUE(WaitFor([&] { return num_taken() == 4; }));
  EXPECT_EQ(descriptor(3), quiet_number);
  EXPECT_FALSE(IsClosed(other));
}

TEST_F(Strangers, WaitLongerAfterEachReset) {
  Connected again = NewConnection(), more = NewConnection();
  Connected first = NewConnection(), second = NewConnection();
  Flood();
  FloodWaiting(&again);
  FloodWaiting(&more);
  const Clock::time_point start = Clock::now();
  Admit(&first);
  Admit(&second);
  EXPECT_TRUE(WaitFor([&] { return num_taken() == 3; }));
  // The second waits for the first.
  EXPECT_GE(Clock::now() - start, 4 * OpenConnections::kAdmissionPeriodMin);
}

TEST_F(Strangers, WaitNoLongerIfTheirNetworkHasGoodClients) {
  Connected good = NewConnection(), last = NewConnection();
  std::vector<Connected> others;
  for (int i = 0; i < 150; ++i) others.push_back(NewConnection());
  Admit(&good);
  open_.SetAuthenticated(PeerName(good));
  Flood();
  Admit(&last);
  // Each waits for one check of the connections; ten checks last as long as the pause.
  for (Connected& connection : others) {
    if (num_taken() == 3) break;
    FloodWaiting(&connection);
  }
  EXPECT_EQ(num_taken(), 3U);
}

TEST_F(Strangers, AreDroppedIfTheyLeaveWhileTheyWait) {
  Connected left = NewConnection(), stays = NewConnection();
  Flood();
  left.client = File();
  const int stays_number = stays.server.descriptor();
  Admit(&left);
  Admit(&stays);
  EXPECT_TRUE(WaitFor([&] { return num_taken() == 2; }));
  EXPECT_EQ(descriptor(1), stays_number);
}

TEST_F(Strangers, ThatWaitAreClosedByStop) {
  std::vector<Connected> waiting;
  for (int i = 0; i < 20; ++i) waiting.push_back(NewConnection());
  Flood();
  for (Connected& connection : waiting) Admit(&connection);
  open_.Stop();
  const auto closed = std::count_if(waiting.begin(), waiting.end(), IsClosed);
  EXPECT_EQ(num_taken() + static_cast<size_t>(closed), 1 + waiting.size());
}

TEST(OpenConnections, DoNotResetStrangersUnlessTold) {
  OpenConnections open(0);
  std::vector<File> taken;
  open.Start([&](int, File connection) { taken.push_back(std::move(connection)); },
             /*bound_strangers=*/false);
  Connected connection = NewConnection();
  open.Admit(0, std::move(connection.server), Clock::now());
  open.SetAuthenticated(PeerName(connection));
  EXPECT_EQ(taken.size(), 1U);
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
