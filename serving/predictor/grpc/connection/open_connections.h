// The connections of a server: how many are open, and which of them flood it.

#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/mutex.h"
#include "grpc/connection/tcp_connection.h"

namespace embershard::rpc {

// Whether calls come faster than kCalls in kPeriod. Not thread-safe.
class FloodRate {
 public:
  static constexpr int64_t kCalls = 100;
  static constexpr std::chrono::milliseconds kPeriod{100};

  explicit FloodRate(Clock::time_point now) : since_(now) {}

  // `calls`: all so far. Of those since the last look that was kPeriod after the one before.
  bool IsAbove(int64_t calls, Clock::time_point now);

 private:
  int64_t counted_ = 0;
  Clock::time_point since_;
};

// gRPC owns a connection once it has it, and says nothing when it closes it. The descriptor
// tells: it is no longer open, or is another file. Thread-safe.
//
// A flood is unauthenticated calls above FloodRate, those of the health service among them, and
// ends kFloodPeriod after the last of it. gRPC 1.51 has no bound for what it reads ahead of them,
// and answers hundreds of calls of a connection before it turns to others. During a flood:
//   - A connection that has made no authenticated call is reset if it sends more than
//     kUnauthenticatedBytes, also while it waits. Its network floods: its further connections may
//     send kFloodingNetworkBytes, unless it has a connection with an authenticated call, too. A new
//     client whose first message is larger may be reset with them, and connects again.
//   - gRPC gets new connections of a network that floods one by one, in their order, with a pause
//     of kAdmissionPeriodMin. The pause doubles up to kAdmissionPeriodMax while further connections
//     are reset, but for a network with an authenticated connection, and halves in each
//     kFloodPeriod without a reset; at last the network floods no more. The others wait, unread:
//     the address may be a proxy's, with other clients behind it.
class OpenConnections {
 public:
  // Gets words for an operator: who is refused here learns nothing but that. May be empty.
  using Report = std::function<void(const std::string& words)>;

  // Gets a connection and the descriptor that it came to.
  using Take = std::function<void(int listening, File connection)>;

  static constexpr uint64_t kUnauthenticatedBytes = 32 << 10;
  static constexpr uint64_t kFloodingNetworkBytes = 8 << 10;
  static constexpr std::chrono::seconds kFloodPeriod{3};
  static constexpr std::chrono::milliseconds kAdmissionPeriodMin{50};
  static constexpr std::chrono::milliseconds kAdmissionPeriodMax{2000};

  // `most`: 0: any number. `report` is called once a minute at most of each matter, by the thread
  // that calls Add() or by the one that Start() starts.
  explicit OpenConnections(size_t most, Report report = {})
      : most_(most), report_(std::move(report)) {}
  OpenConnections(const OpenConnections&) = delete;
  OpenConnections& operator=(const OpenConnections&) = delete;
  ~OpenConnections();  // Calls Stop().

  // Whether there may be one more. If so, `connection` counts until its descriptor is closed, by
  // whomever. Looks which have been closed where they seem to be as many as may be, at most
  // once in ten milliseconds: a flood of those that are refused costs little.
  bool Add(const File& connection, Clock::time_point now) EXCLUDES(mutex_);

  // Connections for which there was no room.
  uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }

  // Admit() calls `take` from now on. `reset_flooding`: starts the thread that resets flooding
  // connections, which calls `take` too. REQUIRES: called once, before the first Admit().
  void Start(Take take, bool reset_flooding);

  // Gives the connection away if there may be one more, at once unless its network floods.
  // Otherwise closes it.
  void Admit(int listening, File connection, Clock::time_point now) EXCLUDES(mutex_);

  // Ends the thread and closes what it has not given away. Safe to call more than once, from one
  // thread. REQUIRES: Admit() is not called any more.
  void Stop() EXCLUDES(mutex_);

  // A call came without a token. Takes no lock.
  void CountUnauthenticatedCall();

  // The connection of this peer, as gRPC names it, has made an authenticated call.
  void SetAuthenticated(const std::string& peer) EXCLUDES(mutex_);

 private:
  struct Counted {
    SocketId socket;
    Peer peer;                 // Empty unless flooding connections are reset.
    uint64_t quiet_bytes = 0;  // Received while there was no flood.
  };
  struct Network {  // That floods.
    std::chrono::milliseconds admission_period;
    Clock::time_point last_admission;
    Clock::time_point last_change;  // Of the period.
    size_t waiting = 0;             // At the last look.
  };
  struct Waiting {
    std::string network;
    int listening;
    File connection;
  };
  void Sweep() REQUIRES(mutex_);
  void WatchForFloods() EXCLUDES(mutex_);
  // Resets connections and gives away those whose time has come.
  void Pace(Clock::time_point now, bool is_flood) EXCLUDES(mutex_);
  std::vector<File> Flooding(Clock::time_point now) REQUIRES(mutex_);
  void CalmDown(Clock::time_point now) REQUIRES(mutex_);
  std::vector<Waiting> Admitted(Clock::time_point now) REQUIRES(mutex_);

  const size_t most_;
  const Report report_;
  std::atomic<uint64_t> refused_ = 0;
  std::atomic<int64_t> unauthenticated_calls_ = 0;
  std::atomic<bool> is_pacing_ = false;  // The watcher looks every few milliseconds.

  Mutex mutex_;
  CondVar changed_;  // Signalled as calls without a token come, and at the end.
  Take take_;        // Set by Start().
  bool stopping_ GUARDED_BY(mutex_) = false;
  Clock::time_point next_report_ GUARDED_BY(mutex_) = Clock::time_point::min();
  std::vector<Counted> counted_ GUARDED_BY(mutex_);
  size_t open_after_sweep_ GUARDED_BY(mutex_) = 0;
  Clock::time_point next_sweep_ GUARDED_BY(mutex_) = Clock::time_point::min();
  std::unordered_set<std::string> authenticated_ GUARDED_BY(mutex_);  // Peers.
  std::unordered_map<std::string, Network> flooding_ GUARDED_BY(mutex_);
  Clock::time_point next_quiet_look_ GUARDED_BY(mutex_) = Clock::time_point::min();
  std::deque<Waiting> waiting_ GUARDED_BY(mutex_);  // Oldest first.

  std::thread watcher_;  // Not started unless flooding connections are reset.
};

}  // namespace embershard::rpc
