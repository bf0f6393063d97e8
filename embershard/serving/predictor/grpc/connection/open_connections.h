// Limits the number of open connections, and the bytes that unauthenticated ones may send.

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

// Thread-safe. gRPC owns each connection and does not report when it closes one. This class finds
// out by its descriptor, which is then closed or denotes another file.
//
// A stranger is a connection without an authenticated call so far. gRPC 1.51 allocates up to 300
// bytes for each byte that a stranger sends (calls of 15 bytes are the worst, references to headers
// take 170), so all strangers share one budget.
//   - If gRPC has read more than the budget from strangers at four checks in a row, in 15 ms, the
//     oldest stranger that sent over kSmallBytes is reset (TCP RST), or else the oldest of all. Its
//     network then counts as flooding: its other strangers are reset once they send over
//     kSmallBytes, also while they wait.
//   - New connections of a flooding network are passed to gRPC one by one, in order, with a pause
//     of kAdmissionPeriodMin. The others wait unread, since the address may be a router's with good
//     clients behind it. The pause doubles up to kAdmissionPeriodMax while connections of the
//     network are reset, unless it has an authenticated connection. It halves in each kFloodPeriod
//     without a reset, until the network no longer counts as flooding.
class OpenConnections {
 public:
  // Receives sentences for the operator. Clients that are refused get no explanation. May be empty.
  using Report = std::function<void(const std::string& words)>;

  using Take = std::function<void(int listening, File connection)>;

  // Budget: bytes that gRPC may read from all strangers together.
  static constexpr uint64_t kStrangerBytes = 256 << 10;

  // Strangers that sent more than this are reset first. Good clients send less before their first
  // call: a TLS handshake with client certificates takes 3 to 5 KiB, a health probe 300 bytes.
  static constexpr uint64_t kSmallBytes = 8 << 10;

  // After a stranger has shown a token, none is reset for at most this time.
  static constexpr std::chrono::milliseconds kExpectationMax{100};

  static constexpr std::chrono::seconds kFloodPeriod{3};
  static constexpr std::chrono::milliseconds kAdmissionPeriodMin{50};
  static constexpr std::chrono::milliseconds kAdmissionPeriodMax{2000};

  // `most`: largest number of connections; 0: no limit. `report` is called at most once a minute
  // for each kind of event, by the thread of Add() or of Start().
  explicit OpenConnections(size_t most, Report report = {})
      : most_(most), report_(std::move(report)) {}
  OpenConnections(const OpenConnections&) = delete;
  OpenConnections& operator=(const OpenConnections&) = delete;
  ~OpenConnections();  // Calls Stop().

  // Returns true if one more connection is allowed; it counts until its descriptor is closed. If
  // the limit seems reached, checks which connections were closed, at most once in 10 ms, so that a
  // flood of refused connections costs little.
  bool Add(const File& connection, Clock::time_point now) EXCLUDES(mutex_);

  // Connections beyond the limit, and strangers that were reset.
  uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }
  uint64_t strangers_reset() const { return strangers_reset_.load(std::memory_order_relaxed); }

  // Sets the function that Admit() calls. `bound_strangers` starts the thread that resets
  // strangers, which also calls `take`; std::system_error if no thread can be created. REQUIRES:
  // called once, before the first Admit().
  void Start(Take take, bool bound_strangers);

  // Closes connections beyond the limit. Connections of a flooding network are passed later.
  void Admit(int listening, File connection, Clock::time_point now) EXCLUDES(mutex_);

  // Ends the thread and closes waiting connections. May be called more than once, from one thread.
  // REQUIRES: Admit() is not called any more.
  void Stop() EXCLUDES(mutex_);

  // Called when some connection has shown a token for the first time. gRPC does not say which one;
  // its handler calls SetAuthenticated() soon after, perhaps when the budget is exceeded already.
  void ExpectAuthenticated(Clock::time_point now) EXCLUDES(mutex_);

  // Called for an authenticated call of this peer, in gRPC's form.
  void SetAuthenticated(const std::string& peer) EXCLUDES(mutex_);

 private:
  enum class State { kStranger, kAuthenticated, kReset };
  struct Connection {
    SocketId socket;
    Peer peer;  // Empty unless strangers are bounded.
    State state = State::kAuthenticated;
    uint64_t received = 0;  // Bytes received at the last check of a stranger.
    uint64_t charge = 0;    // Part of them that gRPC has read or reads next.
    int quiet_looks = 0;    // Checks in a row without traffic.
  };
  struct Network {  // A flooding network.
    std::chrono::milliseconds admission_period;
    Clock::time_point last_admission;
    Clock::time_point last_change;  // When the period changed.
    size_t waiting = 0;             // Waiting connections at the last check.
  };
  struct Waiting {
    std::string network;
    int listening;
    File connection;
  };

  void Sweep() REQUIRES(mutex_);
  void WatchStrangers() EXCLUDES(mutex_);
  // Charges these strangers for the bytes that gRPC has read, and removes quiet ones from
  // `numbers`. Resets strangers beyond the budget, and passes on connections whose pause is over.
  // Returns the charges of those that were reset.
  uint64_t Look(std::set<uint64_t>* numbers, Clock::time_point now) EXCLUDES(mutex_);
  // Returns true if the stranger is quiet.
  bool Charge(Connection* stranger) REQUIRES(mutex_);
  std::vector<File> BeyondBudget(Clock::time_point now) REQUIRES(mutex_);
  void SlowDown(const std::string& network, bool is_shared, Clock::time_point now) REQUIRES(mutex_);
  void CalmDown(Clock::time_point now) REQUIRES(mutex_);
  std::vector<Waiting> Admitted(Clock::time_point now) REQUIRES(mutex_);
  void SetState(Connection* stranger, State state) REQUIRES(mutex_);

  const size_t most_;
  const Report report_;
  std::atomic<uint64_t> refused_ = 0;
  std::atomic<uint64_t> strangers_reset_ = 0;
  File arrivals_;  // epoll descriptor: strangers that have sent something.
  File stopping_;  // Becomes readable when the thread should end.
  Take take_;      // Set by Start().

  Mutex mutex_;
  Clock::time_point next_report_ GUARDED_BY(mutex_) = Clock::time_point::min();
  std::map<uint64_t, Connection> connections_ GUARDED_BY(mutex_);  // By number, oldest first.
  uint64_t next_number_ GUARDED_BY(mutex_) = 1;
  size_t open_after_sweep_ GUARDED_BY(mutex_) = 0;
  Clock::time_point next_sweep_ GUARDED_BY(mutex_) = Clock::time_point::min();
  std::unordered_multimap<std::string, uint64_t> strangers_ GUARDED_BY(mutex_);  // By peer.
  uint64_t charged_ GUARDED_BY(mutex_) = 0;  // Sum over all strangers.
  std::unordered_map<std::string, Network> flooding_ GUARDED_BY(mutex_);
  std::deque<Waiting> waiting_ GUARDED_BY(mutex_);  // Oldest first.
  int looks_beyond_ GUARDED_BY(mutex_) = 0;         // Checks in a row beyond the budget.
  size_t expected_ GUARDED_BY(mutex_) = 0;          // Strangers that have shown a token.
  Clock::time_point expected_until_ GUARDED_BY(mutex_) = Clock::time_point::min();

  std::thread watcher_;  // Not started unless strangers are bounded.
};

}  // namespace embershard::rpc
