#include "grpc/connection/open_connections.h"

#include <algorithm>
#include <chrono>
#include <exception>

namespace embershard::rpc {
namespace {

constexpr std::chrono::milliseconds kBetweenSweeps{10};
constexpr std::chrono::minutes kBetweenReports{1};
constexpr std::chrono::seconds kBetweenLooks{1};
constexpr std::chrono::milliseconds kBetweenFloodLooks{5};
constexpr size_t kSweepConnections = 1024;
constexpr int64_t kWakeCalls = 32;  // The watcher wakes once for as many unauthenticated calls.

// gRPC writes an IPv6 address with its brackets escaped.
std::string WithBrackets(std::string peer) {
  for (const auto& [escaped, bracket] : {std::pair{"%5B", "["}, std::pair{"%5D", "]"}}) {
    const size_t at = peer.find(escaped);
    if (at != std::string::npos) peer.replace(at, 3, bracket);
  }
  return peer;
}

}  // namespace

bool FloodRate::IsAbove(int64_t calls, Clock::time_point now) {
  const auto passed = std::max<Clock::duration>(now - since_, kPeriod);
  const bool is_above = (calls - counted_) * kPeriod > kCalls * passed;
  if (is_above || now - since_ >= kPeriod) {
    counted_ = calls;
    since_ = now;
  }
  return is_above;
}

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
  std::string network;
  if (watcher_.joinable()) network = PeerOf(connection.descriptor()).network;
  if (!Add(connection, now)) return;  // From here on it may be reset, and has no peer then.
  if (watcher_.joinable()) {
    MutexLock lock(mutex_);
    if (flooding_.contains(network)) {
      waiting_.push_back({std::move(network), listening, std::move(connection)});
      return;
    }
  }
  take_(listening, std::move(connection));
}

void OpenConnections::CountUnauthenticatedCall() {
  if (unauthenticated_calls_.fetch_add(1, std::memory_order_relaxed) % kWakeCalls == 0 &&
      !is_pacing_.load(std::memory_order_relaxed)) {
    changed_.NotifyAll();
  }
}

void OpenConnections::SetAuthenticated(const std::string& peer) {
  std::string name = WithBrackets(peer);
  MutexLock lock(mutex_);
  authenticated_.insert(std::move(name));
}

void OpenConnections::WatchForFloods() {
  const Clock::time_point started = Clock::now();
  FloodRate rate(started);
  Clock::time_point flood_end = started;
  Clock::time_point next_report = started;
  MutexLock lock(mutex_);
  while (!stopping_) {
    const int64_t calls = unauthenticated_calls_.load(std::memory_order_relaxed);
    const Clock::time_point now = Clock::now();
    const bool is_above = rate.IsAbove(calls, now);
    if (is_above) flood_end = now + kFloodPeriod;
    const bool is_flood = now < flood_end;
    lock.Unlock();
    if (is_above && report_ && now >= next_report) {
      next_report = now + kBetweenReports;
      report_("a flood of calls without a token: over " + std::to_string(FloodRate::kCalls) +
              " in " + std::to_string(FloodRate::kPeriod.count()) +
              " ms; connections that send over " + std::to_string(kUnauthenticatedBytes >> 10) +
              " KiB without a token are reset");
    }
    try {
      Pace(now, is_flood);
    } catch (const std::exception&) {  // Memory has run out. There is a next look.
    }
    lock.Lock();
    const bool is_pacing = is_flood || !flooding_.empty();
    is_pacing_.store(is_pacing, std::memory_order_relaxed);
    if (!stopping_)
      changed_.WaitUntil(mutex_, now + (is_pacing ? kBetweenFloodLooks : kBetweenLooks));
  }
}

void OpenConnections::Pace(Clock::time_point now, bool is_flood) {
  std::vector<File> flooding;
  {
    MutexLock lock(mutex_);
    if (is_flood) {
      Sweep();
      flooding = Flooding(now);
    } else if (now >= next_quiet_look_) {
      next_quiet_look_ = now + kBetweenLooks;
      for (Counted& each : counted_) each.quiet_bytes = ReceivedBytes(each.socket.descriptor);
    }
    CalmDown(now);
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
  std::erase_if(waiting_, [](const Waiting& each) {  // Not open: memory ran out as it was moved.
    return !each.connection.is_open() || IsClosedByPeer(each.connection.descriptor());
  });
  for (auto& [_, network] : flooding_) network.waiting = 0;
  std::vector<Waiting> admitted;
  std::deque<Waiting> waiting;
  for (Waiting& each : waiting_) {
    if (const auto found = flooding_.find(each.network); found != flooding_.end()) {
      Network& network = found->second;
      if (now < network.last_admission + network.admission_period) {
        ++network.waiting;
        waiting.push_back(std::move(each));
        continue;
      }
      network.last_admission = now;
    }
    admitted.push_back(std::move(each));
  }
  waiting_ = std::move(waiting);
  return admitted;
}

void OpenConnections::CalmDown(Clock::time_point now) {
  for (auto& [_, network] : flooding_) {
    if (now < network.last_change + kFloodPeriod) continue;
    network.last_change = now;
    network.admission_period = std::max(network.admission_period / 2, kBetweenFloodLooks);
  }
  std::erase_if(flooding_, [](const auto& each) {
    return each.second.admission_period < kAdmissionPeriodMin && each.second.waiting == 0;
  });
}

std::vector<File> OpenConnections::Flooding(Clock::time_point now) {
  std::unordered_set<std::string> shared;  // Networks of good clients.
  for (const Counted& counted : counted_) {
    if (authenticated_.contains(counted.peer.name)) shared.insert(counted.peer.network);
  }
  std::vector<File> flooding;
  for (const Counted& counted : counted_) {
    if (authenticated_.contains(counted.peer.name)) continue;
    const std::string& address = counted.peer.network;
    const bool is_shared = shared.contains(address);
    const uint64_t most =
        flooding_.contains(address) && !is_shared ? kFloodingNetworkBytes : kUnauthenticatedBytes;
    if (ReceivedBytes(counted.socket.descriptor) <= counted.quiet_bytes + most) continue;
    File same = counted.socket.Duplicate();
    if (!same.is_open()) continue;
    flooding.push_back(std::move(same));
    const Network first = {kAdmissionPeriodMin, now, now};
    Network& network = flooding_.try_emplace(address, first).first->second;
    if (is_shared) {
      network.admission_period = kAdmissionPeriodMin;
    } else if (network.last_change != now) {  // Once in each look.
      network.admission_period =
          std::clamp(2 * network.admission_period, kAdmissionPeriodMin, kAdmissionPeriodMax);
    }
    network.last_change = now;
  }
  return flooding;
}

}  // namespace embershard::rpc
