// The connections of a server: how many are open, and what strangers among them may send.

#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
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

// gRPC owns a connection once it has it, and says nothing when it closes it. The descriptor
// tells: it is no longer open, or is another file. Thread-safe.
//
// A stranger is a connection that has made no authenticated call. gRPC 1.51 holds up to 300 bytes
// for a byte that a stranger sends: calls of 15 bytes take the most, references to headers 170. So
// all strangers have one budget together.
//   - If gRPC has read more from them at four looks in a row, in 15 ms, the oldest that has sent
//     over kSmallBytes is reset (TCP RST), or else the oldest. Its network floods from then on:
//     other strangers of it are reset if they send over kSmallBytes, also while they wait.
//   - gRPC gets new connections of a network that floods one by one, in their order, with a pause
//     of kAdmissionPeriodMin. The pause doubles up to kAdmissionPeriodMax while further connections
//     are reset, but for a network with an authenticated connection, and halves in each
//     kFloodPeriod without a reset; at last the network floods no more. The others wait, unread:
//     the address may be a router's, with other clients behind it.
class OpenConnections {
 public:
  // Gets words for an operator: who is refused here learns nothing but that. May be empty.
  using Report = std::function<void(const std::string& words)>;

  // Gets a connection and the descriptor that it came to.
  using Take = std::function<void(int listening, File connection)>;

  // The most bytes that gRPC may read from all strangers together.
  static constexpr uint64_t kStrangerBytes = 256 << 10;

  // TLS with client certificates takes 3 to 5 KiB, a health probe 300 bytes.
  static constexpr uint64_t kSmallBytes = 8 << 10;

  // So long at most no stranger is reset because one of them has shown a token.
  static constexpr std::chrono::milliseconds kExpectationMax{100};

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

  // Connections for which there was no room, and strangers that were reset.
  uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }
  uint64_t strangers_reset() const { return strangers_reset_.load(std::memory_order_relaxed); }

  // Admit() calls `take` from now on. `bound_strangers`: starts the thread that resets them, which
  // calls `take` too; std::system_error if the system has no room for it. REQUIRES: called once,
  // before the first Admit().
  void Start(Take take, bool bound_strangers);

  // Gives the connection away if there may be one more, at once unless its network floods.
  // Otherwise closes it.
  void Admit(int listening, File connection, Clock::time_point now) EXCLUDES(mutex_);

  // Ends the thread and closes what it has not given away. Safe to call more than once, from one
  // thread. REQUIRES: Admit() is not called any more.
  void Stop() EXCLUDES(mutex_);

  // A connection has shown the token for the first time. gRPC does not say which one, but calls a
  // handler soon, which calls SetAuthenticated(). It may have read more than the budget by then.
  void ExpectAuthenticated(Clock::time_point now) EXCLUDES(mutex_);

  // The connection of this peer, as gRPC names it, has made an authenticated call.
  void SetAuthenticated(const std::string& peer) EXCLUDES(mutex_);

 private:
  enum class State { kStranger, kAuthenticated, kReset };
  struct Connection {
    SocketId socket;
    Peer peer;  // Empty unless strangers are bounded.
    State state = State::kAuthenticated;
    uint64_t received = 0;  // At the last look at a stranger.
    uint64_t charge = 0;    // Of these, what gRPC has read or reads next.
    int quiet_looks = 0;    // Since something was sent or received.
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
  void WatchStrangers() EXCLUDES(mutex_);
  // Charges the strangers of these numbers for what gRPC has read, and forgets those that are
  // quiet. Resets those beyond the budget, and gives away connections whose time has come. Returns
  // what was charged to those that were reset.
  uint64_t Look(std::set<uint64_t>* numbers, Clock::time_point now) EXCLUDES(mutex_);
  // Returns true if the stranger is quiet.
  bool Charge(Connection* stranger) REQUIRES(mutex_);
  std::vector<File> BeyondBudget(Clock::time_point now) REQUIRES(mutex_);
  void SlowDown(const std::string& network, bool is_shared, Clock::time_point now) REQUIRES(mutex_);
  void CalmDown(Clock::time_point now) REQUIRES(mutex_);
  std::vector<Waiting> Admitted(Clock::time_point now) REQUIRES(mutex_);
  // A stranger is one no more.
  void SetState(Connection* stranger, State state) REQUIRES(mutex_);

  const size_t most_;
  const Report report_;
  std::atomic<uint64_t> refused_ = 0;
  std::atomic<uint64_t> strangers_reset_ = 0;
  File arrivals_;  // epoll: tells which strangers have sent something.
  File stopping_;  // Can be read from when the thread shall end.
  Take take_;      // Set by Start().

  Mutex mutex_;
  Clock::time_point next_report_ GUARDED_BY(mutex_) = Clock::time_point::min();
  std::map<uint64_t, Connection> connections_ GUARDED_BY(mutex_);  // By number, oldest first.
  uint64_t next_number_ GUARDED_BY(mutex_) = 1;
  size_t open_after_sweep_ GUARDED_BY(mutex_) = 0;
  Clock::time_point next_sweep_ GUARDED_BY(mutex_) = Clock::time_point::min();
  std::unordered_multimap<std::string, uint64_t> strangers_ GUARDED_BY(mutex_);  // By peer.
  uint64_t charged_ GUARDED_BY(mutex_) = 0;                                      // To all of them.
  std::unordered_map<std::string, Network> flooding_ GUARDED_BY(mutex_);
  std::deque<Waiting> waiting_ GUARDED_BY(mutex_);  // Oldest first.
  int looks_beyond_ GUARDED_BY(mutex_) = 0;         // One after the other.
  size_t expected_ GUARDED_BY(mutex_) = 0;          // Strangers that have shown the token.
  Clock::time_point expected_until_ GUARDED_BY(mutex_) = Clock::time_point::min();

  std::thread watcher_;  // Not started unless strangers are bounded.
};

}  // namespace embershard::rpc
