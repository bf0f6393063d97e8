#include "grpc/connection/open_connections.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>

namespace embershard {
namespace {

constexpr std::chrono::milliseconds kBetweenSweeps{10};
constexpr std::chrono::minutes kBetweenReports{1};
constexpr std::chrono::seconds kCountPeriod{1};
constexpr std::chrono::milliseconds kBetweenFloodLooks{5};
constexpr size_t kSweepConnections = 1024;
constexpr uint64_t kWakeCalls = 64;  // The watcher wakes once for as many unauthenticated calls.

std::string PeerText(int family, const void* address, in_port_t port) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(family, address, text, sizeof(text));
  const std::string host = text;
  const std::string end = ":" + std::to_string(ntohs(port));
  return family == AF_INET ? "ipv4:" + host + end : "ipv6:[" + host + "]" + end;
}

// "ipv4:127.0.0.1:50051", or "ipv6:[::1]:50051". Empty if it is gone.
std::string PeerOf(int descriptor) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
  if (address.ss_family == AF_INET) {
    const auto& ipv4 = reinterpret_cast<const sockaddr_in&>(address);
    return PeerText(AF_INET, &ipv4.sin_addr, ipv4.sin_port);
  }
  const auto& ipv6 = reinterpret_cast<const sockaddr_in6&>(address);
  // IPv4, at a port of IPv6: the last four bytes of "::ffff:127.0.0.1".
  if (IN6_IS_ADDR_V4MAPPED(&ipv6.sin6_addr)) {
    return PeerText(AF_INET, &ipv6.sin6_addr.s6_addr[12], ipv6.sin6_port);
  }
  return PeerText(AF_INET6, &ipv6.sin6_addr, ipv6.sin6_port);
}

// gRPC writes an IPv6 address with its brackets escaped.
std::string WithBrackets(std::string peer) {
  for (const auto& [escaped, bracket] : {std::pair{"%5B", "["}, std::pair{"%5D", "]"}}) {
    const size_t at = peer.find(escaped);
    if (at != std::string::npos) peer.replace(at, 3, bracket);
  }
  return peer;
}

// Of a peer, which its port follows.
std::string AddressOf(const std::string& peer) { return peer.substr(0, peer.rfind(':')); }

uint64_t ReceivedBytes(int descriptor) {
  tcp_info info = {};
  socklen_t size = sizeof(info);
  if (getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  return info.tcpi_bytes_received;
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
      struct stat file = {};
      if (fstat(connection.descriptor(), &file) != 0) return false;
      std::string peer = watches ? PeerOf(connection.descriptor()) : "";
      authenticated_.erase(peer);  // Of an earlier connection.
      counted_.push_back({connection.descriptor(), file.st_dev, file.st_ino, std::move(peer)});
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
  std::erase_if(counted_, [](const Counted& counted) {
    struct stat file = {};
    return fstat(counted.descriptor, &file) != 0 || file.st_dev != counted.device ||
           file.st_ino != counted.inode;
  });
  open_after_sweep_ = counted_.size();
  std::unordered_set<std::string> open;
  for (const Counted& counted : counted_) {
    if (authenticated_.contains(counted.peer)) open.insert(counted.peer);
  }
  authenticated_ = std::move(open);
}

void OpenConnections::Start(Take take, bool close_flooding) {
  take_ = std::move(take);
  if (close_flooding) watcher_ = std::thread([this] { WatchForFloods(); });
}

void OpenConnections::Admit(int listening, File connection, Clock::time_point now) {
  if (!Add(connection, now)) return;
  if (watcher_.joinable()) {
    std::string address = AddressOf(PeerOf(connection.descriptor()));
    MutexLock lock(mutex_);
    if (flooding_.contains(address)) {
      waiting_.push_back({std::move(address), listening, std::move(connection)});
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
              " in a second; connections that make them are closed");
    }
    Pace(now, is_flood);
    lock.Lock();
    if (!stopping_)
      changed_.WaitUntil(mutex_, now + (is_flood ? kBetweenFloodLooks : kCountPeriod));
  }
}

void OpenConnections::Pace(Clock::time_point now, bool is_flood) {
  std::vector<File> flooding;
  std::vector<Waiting> admitted;
  {
    MutexLock lock(mutex_);
    if (is_flood) {
      flooding = Flooding(now);
    } else {
      flooding_.clear();
    }
    admitted = Admitted(now);
  }
  for (const File& connection : flooding) shutdown(connection.descriptor(), SHUT_RDWR);
  for (Waiting& each : admitted) take_(each.listening, std::move(each.connection));
}

std::vector<OpenConnections::Waiting> OpenConnections::Admitted(Clock::time_point now) {
  std::vector<Waiting> admitted;
  std::deque<Waiting> waiting;
  for (Waiting& each : waiting_) {
    const auto found = flooding_.find(each.address);
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
  std::unordered_set<int> waiting;  // They have been read by nobody.
  for (const Waiting& each : waiting_) waiting.insert(each.connection.descriptor());
  std::vector<File> flooding;
  for (const Counted& counted : counted_) {
    if (authenticated_.contains(counted.peer) || waiting.contains(counted.descriptor) ||
        ReceivedBytes(counted.descriptor) <= kUnauthenticatedBytes) {
      continue;
    }
    // gRPC may close the descriptor at any time, and the number may be another file's then.
    File same(fcntl(counted.descriptor, F_DUPFD_CLOEXEC, 0));
    struct stat file = {};
    if (same.is_open() && fstat(same.descriptor(), &file) == 0 && file.st_dev == counted.device &&
        file.st_ino == counted.inode) {
      flooding.push_back(std::move(same));
      flooding_.try_emplace(AddressOf(counted.peer), now + kAdmissionPeriod);
    }
  }
  return flooding;
}

}  // namespace embershard
