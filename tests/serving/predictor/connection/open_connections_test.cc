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

// Sends as many bytes and counts enough calls again and again: those before the watcher sees a
// flood do not count.
void FloodUntilClosed(const Connected& connection, OpenConnections* open,
                      size_t bytes = OpenConnections::kUnauthenticatedBytes + 1) {
  const std::string some(bytes, 'x');
  EXPECT_TRUE(WaitFor([&] {
    send(connection.client.descriptor(), some.data(), some.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    for (int64_t i = 0; i <= FloodRate::kCalls; ++i) open->CountUnauthenticatedCall();
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
    Send(quiet, OpenConnections::kUnauthenticatedBytes);  // Of a network of good clients.
    FloodUntilClosed(flooding, &open);
    open.Stop();  // Behind all of the look that reset it.
    EXPECT_FALSE(IsClosed(authenticated));
    EXPECT_FALSE(IsClosed(quiet));
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
  Send(second, OpenConnections::kFloodingNetworkBytes);
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
  Send(waiting, OpenConnections::kFloodingNetworkBytes + 1);
  const int quiet_number = quiet.server.descriptor();
  open.Admit(0, std::move(waiting.server), Clock::now());
  open.Admit(0, std::move(quiet.server), Clock::now());
  EXPECT_TRUE(WaitFor([&] { return IsClosed(waiting); }));
  EXPECT_TRUE(WaitFor([&] { return taken.size() == 2; }));
  EXPECT_EQ(taken.descriptor(1), quiet_number);
}

TEST(OpenConnections, BoundsNetworksThatFloodMoreTightly) {
  Taken taken;
  OpenConnections open(0);
  open.Start(taken.Take(), /*reset_flooding=*/true);
  Connected flooding = NewConnection(), same = NewConnection();
  Connected other = NewConnection(INADDR_LOOPBACK + 1);
  for (Connected* each : {&flooding, &same, &other}) {
    open.Admit(0, std::move(each->server), Clock::now());
  }
  FloodUntilClosed(flooding, &open);
  Send(other, OpenConnections::kUnauthenticatedBytes);
  Send(same, OpenConnections::kFloodingNetworkBytes + 1);
  FloodUntilClosed(same, &open, 0);
  open.Stop();
  EXPECT_FALSE(IsClosed(other));
}

// Of a network that floods: is reset while it waits. ThreadSanitizer takes a descriptor that a test
// closes or opens while the watcher looks at descriptors for a race: tests have them before.
void FloodWaiting(Connected* connection, OpenConnections* open) {
  Send(*connection, OpenConnections::kFloodingNetworkBytes + 1);
  open->Admit(0, std::move(connection->server), Clock::now());
  FloodUntilClosed(*connection, open, 0);
}

TEST(OpenConnections, WaitLongerAfterEachReset) {
  Taken taken;
  OpenConnections open(0);
  open.Start(taken.Take(), /*reset_flooding=*/true);
  Connected flooding = NewConnection(), again = NewConnection(), more = NewConnection();
  Connected first = NewConnection(), second = NewConnection();
  open.Admit(0, std::move(flooding.server), Clock::now());
  FloodUntilClosed(flooding, &open);
  FloodWaiting(&again, &open);
  FloodWaiting(&more, &open);
  const Clock::time_point start = Clock::now();
  open.Admit(0, std::move(first.server), start);
  open.Admit(0, std::move(second.server), start);
  EXPECT_TRUE(WaitFor([&] { return taken.size() == 3; }));
  EXPECT_GE(Clock::now() - start, 4 * OpenConnections::kAdmissionPeriodMin);  // Behind the first.
}

TEST(OpenConnections, AreGivenAwayWhileOthersOfTheirNetworkAreReset) {
  Taken taken;
  OpenConnections open(0);
  open.Start(taken.Take(), /*reset_flooding=*/true);
  Connected flooding = NewConnection(), waiting = NewConnection();
  std::vector<Connected> others;
  for (int i = 0; i < 150; ++i) others.push_back(NewConnection());
  open.Admit(0, std::move(flooding.server), Clock::now());
  FloodUntilClosed(flooding, &open);
  open.Admit(0, std::move(waiting.server), Clock::now());
  for (Connected& each : others) {
    if (taken.size() == 2) break;
    FloodWaiting(&each, &open);
    std::this_thread::sleep_for(milliseconds(20));  // Of 2 s at most between two admissions.
  }
  EXPECT_EQ(taken.size(), 2U);
  open.Stop();
  EXPECT_FALSE(IsClosed(waiting));
}

TEST(FloodRate, IsThatOfAPeriodOrLonger) {
  const Clock::time_point start = Clock::now();
  FloodRate slow(start), fast(start), spread(start), burst(start);
  EXPECT_FALSE(slow.IsAbove(100, start + milliseconds(50)));
  EXPECT_FALSE(slow.IsAbove(100, start + milliseconds(100)));
  EXPECT_FALSE(slow.IsAbove(200, start + milliseconds(150)));  // Another period.
  EXPECT_TRUE(slow.IsAbove(201, start + milliseconds(160)));
  EXPECT_TRUE(fast.IsAbove(101, start + milliseconds(1)));
  EXPECT_FALSE(fast.IsAbove(201, start + milliseconds(2)));  // Counted anew.
  EXPECT_FALSE(spread.IsAbove(1000, start + milliseconds(1000)));
  EXPECT_TRUE(spread.IsAbove(2001, start + milliseconds(2000)));
  EXPECT_FALSE(burst.IsAbove(0, start + milliseconds(900)));
  EXPECT_TRUE(burst.IsAbove(101, start + milliseconds(905)));
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
