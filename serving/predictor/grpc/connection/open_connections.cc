#include "grpc/connection/open_connections.h"

#include <chrono>

namespace embershard::rpc {
namespace {

constexpr std::chrono::milliseconds kBetweenSweeps{10};
constexpr std::chrono::minutes kBetweenReports{1};
constexpr std::chrono::seconds kCountPeriod{1};
constexpr std::chrono::milliseconds kBetweenFloodLooks{5};
constexpr size_t kSweepConnections = 1024;
constexpr uint64_t kWakeCalls = 64;  // The watcher wakes once for as many unauthenticated calls.

// gRPC writes an IPv6 address with its brackets escaped.
std::string WithBrackets(std::string peer) {
  for (const auto& [escaped, bracket] : {std::pair{"%5B", "["}, std::pair{"%5D", "]"}}) {
    const size_t at = peer.find(escaped);
    if (at != std::string::npos) peer.replace(at, 3, bracket);
  }
  return peer;
}

}  // namespace

OpenConnections::~OpenConnections() { Stop(); }

void OpenConnections::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  if (watcher_.joinable()) watcher_.join();
  MutexLock lock(mutex_);
  waiting_.clear();
}

bool OpenConnections::Add(const File& connection, Clock::time_point now) {
  const bool watches = watcher_.joinable();
  if (most_ == 0 && !watches) return true;
  std::string words;
  {
    MutexLock lock(mutex_);
    const size_t most = most_ == 0 ? counted_.size() + 1 : most_;
    const size_t full = most_ == 0 ? 2 * open_after_sweep_ + kSweepConnections : most_;
    if (counted_.size() >= full && now >= next_sweep_) {
      Sweep();
      next_sweep_ = now + kBetweenSweeps;
    }
    if (counted_.size() < most) {
      Peer peer = watches ? PeerOf(connection.descriptor()) : Peer();
      authenticated_.erase(peer.name);  // Of an earlier connection.
      counted_.push_back({SocketId::Of(connection.descriptor()), std::move(peer)});
      return true;
    }
    const uint64_t refused = refused_.fetch_add(1, std::memory_order_relaxed) + 1;
    if (now < next_report_) return false;
    next_report_ = now + kBetweenReports;
    words = "connections are refused: expected at most " + std::to_string(most_) +
            " open (max_connections), refused so far: " + std::to_string(refused);
  }
  if (report_) report_(words);
  return false;
}

void OpenConnections::Sweep() {
  std::erase_if(counted_, [](const Counted& counted) { return !counted.socket.IsOpen(); });
  open_after_sweep_ = counted_.size();
  std::unordered_set<std::string> open;
  for (const Counted& counted : counted_) {
    if (authenticated_.contains(counted.peer.name)) open.insert(counted.peer.name);
  }
  authenticated_ = std::move(open);
}

void OpenConnections::Start(Take take, bool reset_flooding) {
  take_ = std::move(take);
  if (reset_flooding) watcher_ = std::thread([this] { WatchForFloods(); });
}

void OpenConnections::Admit(int listening, File connection, Clock::time_point now) {
  if (!Add(connection, now)) return;
  if (watcher_.joinable()) {
    std::string network = PeerOf(connection.descriptor()).network;
    MutexLock lock(mutex_);
    if (flooding_.contains(network)) {
      waiting_.push_back({std::move(network), listening, std::move(connection)});
      return;
    }
  }
  take_(listening, std::move(connection));
}

void OpenConnections::CountUnauthenticatedCall() {
  if (unauthenticated_calls_.fetch_add(1, std::memory_order_relaxed) % kWakeCalls == 0) {
    changed_.NotifyAll();
  }
}

void OpenConnections::SetAuthenticated(const std::string& peer) {
  std::string name = WithBrackets(peer);
  MutexLock lock(mutex_);
  authenticated_.insert(std::move(name));
}

void OpenConnections::WatchForFloods() {
  uint64_t counted = 0;  // Unauthenticated calls before `since`.
  Clock::time_point since = Clock::now();
  Clock::time_point flood_end = since;
  Clock::time_point next_report = since;
  MutexLock lock(mutex_);
  while (!stopping_) {
    const uint64_t calls = unauthenticated_calls_.load(std::memory_order_relaxed);
    const Clock::time_point now = Clock::now();
    const bool is_above = calls - counted > kFloodCalls;
    if (is_above) {
      flood_end = now + kFloodPeriod;
      Sweep();
    }
    if (is_above || now - since >= kCountPeriod) {
      counted = calls;
      since = now;
    }
    const bool is_flood = now < flood_end;
    lock.Unlock();
    if (is_above && report_ && now >= next_report) {
      next_report = now + kBetweenReports;
      report_("a flood of calls without a token: over " + std::to_string(kFloodCalls) +
              " in a second; connections that make them are reset");
    }
    Pace(now, is_flood);
    lock.Lock();
    if (!stopping_)
      changed_.WaitUntil(mutex_, now + (is_flood ? kBetweenFloodLooks : kCountPeriod));
  }
}

void OpenConnections::Pace(Clock::time_point now, bool is_flood) {
  std::vector<File> flooding;
  {
    MutexLock lock(mutex_);
    if (is_flood) {
      flooding = Flooding(now);
    } else {
      flooding_.clear();
    }
  }
  for (const File& connection : flooding) Reset(connection.descriptor());
  std::vector<Waiting> admitted;
  {
    MutexLock lock(mutex_);
    admitted = Admitted(now);
  }
  for (Waiting& each : admitted) take_(each.listening, std::move(each.connection));
}

std::vector<OpenConnections::Waiting> OpenConnections::Admitted(Clock::time_point now) {
  std::erase_if(waiting_,
                [](const Waiting& each) { return IsClosedByPeer(each.connection.descriptor()); });
  std::vector<Waiting> admitted;
  std::deque<Waiting> waiting;
  for (Waiting& each : waiting_) {
    const auto found = flooding_.find(each.network);
    if (found != flooding_.end() && now < found->second) {
      waiting.push_back(std::move(each));
      continue;
    }
    if (found != flooding_.end()) found->second = now + kAdmissionPeriod;
    admitted.push_back(std::move(each));
  }
  waiting_ = std::move(waiting);
  return admitted;
}

std::vector<File> OpenConnections::Flooding(Clock::time_point now) {
  std::vector<File> flooding;
  for (const Counted& counted : counted_) {
    if (authenticated_.contains(counted.peer.name) ||
        ReceivedBytes(counted.socket.descriptor) <= kUnauthenticatedBytes) {
      continue;
    }
    File same = counted.socket.Duplicate();
    if (!same.is_open()) continue;
    flooding.push_back(std::move(same));
    flooding_.try_emplace(counted.peer.network, now + kAdmissionPeriod);
  }
  return flooding;
}

}  // namespace embershard::rpc
