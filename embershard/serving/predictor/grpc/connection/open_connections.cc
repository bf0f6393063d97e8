#include "grpc/connection/open_connections.h"

#include <malloc.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <exception>
#include <iterator>
#include <system_error>

namespace embershard::rpc {
namespace {

constexpr std::chrono::milliseconds kBetweenSweeps{10};
constexpr std::chrono::minutes kBetweenReports{1};
constexpr std::chrono::milliseconds kBetweenLooks{5};
constexpr int kQuietLooks = 20;
constexpr int kPatientLooks = 4;  // gRPC's thread that has read a token may wait for a processor.
constexpr size_t kSweepConnections = 1024;
constexpr uint64_t kStop = 0;  // Not the number of a connection.

// Restores the brackets of an IPv6 address, which gRPC escapes.
std::string WithBrackets(std::string peer) {
  for (const auto& [escaped, bracket] : {std::pair{"%5B", "["}, std::pair{"%5D", "]"}}) {
    const size_t at = peer.find(escaped);
    if (at != std::string::npos) peer.replace(at, 3, bracket);
  }
  return peer;
}

// With EPOLLOUT, epoll also reports data that was read meanwhile, unless the peer does not read its
// own.
constexpr uint32_t kArrival = EPOLLIN | EPOLLOUT | EPOLLET;

bool Listen(const File& epoll, int descriptor, uint32_t events, uint64_t number) {
  epoll_event event = {.events = events, .data = {.u64 = number}};
  return epoll_ctl(epoll.descriptor(), EPOLL_CTL_ADD, descriptor, &event) == 0;
}

}  // namespace

OpenConnections::~OpenConnections() { Stop(); }

void OpenConnections::Stop() {
  if (watcher_.joinable()) {
    eventfd_write(stopping_.descriptor(), 1);
    watcher_.join();
  }
  MutexLock lock(mutex_);
  waiting_.clear();
}

bool OpenConnections::Add(const File& connection, Clock::time_point now) {
  const bool watches = watcher_.joinable();
  if (most_ == 0 && !watches) return true;
  std::string words;
  {
    MutexLock lock(mutex_);
    const size_t most = most_ == 0 ? connections_.size() + 1 : most_;
    const size_t full = most_ == 0 ? 2 * open_after_sweep_ + kSweepConnections : most_;
    if (connections_.size() >= full && now >= next_sweep_) {
      Sweep();
      next_sweep_ = now + kBetweenSweeps;
    }
    if (connections_.size() < most) {
      const uint64_t number = next_number_++;
      Connection& added = connections_[number];
      added.socket = SocketId::Of(connection.descriptor());
      if (!watches) return true;
      added.peer = PeerOf(connection.descriptor());
      added.state = State::kStranger;
      strangers_.emplace(added.peer.name, number);
      return Listen(arrivals_, connection.descriptor(), kArrival, number);
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
  for (auto entry = connections_.begin(); entry != connections_.end();) {
    const bool is_open = entry->second.socket.IsOpen();
    if (!is_open && entry->second.state == State::kStranger)
      SetState(&entry->second, State::kReset);
    entry = is_open ? std::next(entry) : connections_.erase(entry);
  }
  open_after_sweep_ = connections_.size();
}

void OpenConnections::Start(Take take, bool bound_strangers) {
  take_ = std::move(take);
  if (!bound_strangers) return;
  arrivals_ = File(epoll_create1(EPOLL_CLOEXEC));
  stopping_ = File(eventfd(0, EFD_CLOEXEC));
  if (!stopping_.is_open() || !Listen(arrivals_, stopping_.descriptor(), EPOLLIN, kStop)) {
    throw std::system_error(errno, std::generic_category(), "epoll");
  }
  watcher_ = std::thread([this] { WatchStrangers(); });
}

void OpenConnections::Admit(int listening, File connection, Clock::time_point now) {
  std::string network;
  if (watcher_.joinable()) network = PeerOf(connection.descriptor()).network;
  if (!Add(connection, now)) return;  // Once added it may be reset, after which it has no peer.
  if (watcher_.joinable()) {
    MutexLock lock(mutex_);
    if (flooding_.contains(network)) {
      waiting_.push_back({std::move(network), listening, std::move(connection)});
      return;
    }
  }
  take_(listening, std::move(connection));
}

void OpenConnections::SetState(Connection* stranger, State state) {
  stranger->state = state;
  charged_ -= stranger->charge;
  const auto [first, last] = strangers_.equal_range(stranger->peer.name);
  strangers_.erase(std::find_if(first, last, [&](const auto& entry) REQUIRES(mutex_) {
    return &connections_.at(entry.second) == stranger;
  }));
  if (!stranger->socket.IsOpen()) return;
  epoll_ctl(arrivals_.descriptor(), EPOLL_CTL_DEL, stranger->socket.descriptor, nullptr);
}

void OpenConnections::ExpectAuthenticated(Clock::time_point now) {
  MutexLock lock(mutex_);
  ++expected_;
  // New clients must not delay a reset that is due.
  if (looks_beyond_ < kPatientLooks) expected_until_ = now + kExpectationMax;
}

void OpenConnections::SetAuthenticated(const std::string& peer) {
  const std::string name = WithBrackets(peer);
  MutexLock lock(mutex_);
  // Two connections may come from one port, to different addresses of the server; only one of them
  // made the call.
  for (auto entry = strangers_.find(name); entry != strangers_.end();
       entry = strangers_.find(name)) {
    SetState(&connections_.at(entry->second), State::kAuthenticated);
    if (expected_ > 0) --expected_;
  }
}

void OpenConnections::WatchStrangers() {
  std::array<epoll_event, 64> events = {};
  std::set<uint64_t> busy;  // Numbers of the strangers to charge at each check.
  uint64_t freed = 0;       // Charges of the connections reset since malloc_trim().
  bool is_beyond = false;   // The budget is exceeded, or was recently.
  Clock::time_point next_report = Clock::time_point::min();
  while (true) {
    const bool waits = busy.empty() && !is_beyond;
    const int ready = epoll_wait(arrivals_.descriptor(), events.data(),
                                 static_cast<int>(events.size()), waits ? -1 : 0);
    const Clock::time_point now = Clock::now();
    const uint64_t before = strangers_reset_;
    try {
      for (int i = 0; i < ready; ++i) busy.insert(events[static_cast<size_t>(i)].data.u64);
      if (busy.contains(kStop)) return;
      freed += Look(&busy, now);
    } catch (const std::exception&) {  // Out of memory: retry at the next check.
    }
    if (const uint64_t reset = strangers_reset_; reset > before && now >= next_report) {
      next_report = now + kBetweenReports;
      if (report_) {
        report_(
            "connections without an authenticated call are reset, the oldest first: expected "
            "at most " +
            std::to_string(kStrangerBytes >> 10) +
            " KiB from all of them together; reset so far: " + std::to_string(reset));
      }
    }
    pollfd stopping = {.fd = stopping_.descriptor(), .events = POLLIN, .revents = 0};
    poll(&stopping, 1, static_cast<int>(kBetweenLooks.count()));
    if (freed >= kStrangerBytes) {  // gRPC has freed most of it by now, but malloc keeps the pages.
      malloc_trim(0);
      freed = 0;
    }
    MutexLock lock(mutex_);
    is_beyond = charged_ > kStrangerBytes || !flooding_.empty();
  }
}

uint64_t OpenConnections::Look(std::set<uint64_t>* numbers, Clock::time_point now) {
  std::vector<File> beyond;
  uint64_t freed = 0;
  {
    MutexLock lock(mutex_);
    std::erase_if(*numbers, [this](uint64_t number) REQUIRES(mutex_) {
      const auto entry = connections_.find(number);
      return entry == connections_.end() || entry->second.state != State::kStranger ||
             Charge(&entry->second);
    });
    const uint64_t before = charged_;
    beyond = BeyondBudget(now);
    freed = before - charged_;
    CalmDown(now);
  }
  strangers_reset_ += beyond.size();  // Before a client can see that it was reset.
  for (const File& connection : beyond) Reset(connection.descriptor());
  std::vector<Waiting> admitted;
  {
    MutexLock lock(mutex_);
    admitted = Admitted(now);
  }
  for (Waiting& waiting : admitted) take_(waiting.listening, std::move(waiting.connection));
  return freed;
}

bool OpenConnections::Charge(Connection* stranger) {
  if (!stranger->socket.IsOpen()) return true;
  const int descriptor = stranger->socket.descriptor;
  const uint64_t unread = UnreadBytes(descriptor);
  stranger->received = std::max(ReceivedBytes(descriptor), unread);
  // gRPC doubles the size of its reads while data is available, which cannot be turned off.
  const uint64_t charge = std::min(stranger->received, 2 * (stranger->received - unread));
  const bool is_quiet =
      charge == stranger->charge && unread == 0 && UnacknowledgedBytes(descriptor) == 0;
  stranger->quiet_looks = is_quiet ? stranger->quiet_looks + 1 : 0;
  charged_ += charge - stranger->charge;
  stranger->charge = charge;
  return stranger->quiet_looks >= kQuietLooks;
}

std::vector<File> OpenConnections::BeyondBudget(Clock::time_point now) {
  std::vector<File> beyond;
  if (now >= expected_until_) expected_ = 0;
  looks_beyond_ = charged_ > kStrangerBytes ? looks_beyond_ + 1 : 0;
  const bool is_beyond = looks_beyond_ >= kPatientLooks;
  if (expected_ > 0 || (!is_beyond && flooding_.empty())) return beyond;
  Sweep();
  std::unordered_set<std::string> shared;  // Networks of good clients.
  for (const auto& [_, connection] : connections_) {
    if (connection.state == State::kAuthenticated) shared.insert(connection.peer.network);
  }
  const auto reset_if = [&](auto is_due) REQUIRES(mutex_) {
    for (auto& [_, connection] : connections_) {
      if (connection.state != State::kStranger || !is_due(connection)) continue;
      File same = connection.socket.Duplicate();
      SetState(&connection, State::kReset);
      if (!same.is_open()) continue;
      beyond.push_back(std::move(same));
      SlowDown(connection.peer.network, shared.contains(connection.peer.network), now);
    }
  };
  reset_if([this](const Connection& connection) REQUIRES(mutex_) {
    return connection.received > kSmallBytes && flooding_.contains(connection.peer.network);
  });
  for (const uint64_t least : {kSmallBytes, uint64_t{0}}) {
    reset_if([&, this](const Connection& connection) REQUIRES(mutex_) {
      return is_beyond && charged_ > kStrangerBytes && connection.charge > least;
    });
  }
  return beyond;
}

void OpenConnections::SlowDown(const std::string& network, bool is_shared, Clock::time_point now) {
  Network& flooding =
      flooding_.try_emplace(network, Network{kAdmissionPeriodMin, now, now}).first->second;
  if (is_shared) {
    flooding.admission_period = kAdmissionPeriodMin;
  } else if (flooding.last_change != now) {  // Once per check.
    flooding.admission_period =
        std::clamp(2 * flooding.admission_period, kAdmissionPeriodMin, kAdmissionPeriodMax);
  }
  flooding.last_change = now;
}

std::vector<OpenConnections::Waiting> OpenConnections::Admitted(Clock::time_point now) {
  std::erase_if(waiting_, [](const Waiting& waiting) {  // Not open: memory ran out as it was moved.
    return !waiting.connection.is_open() || IsClosedByPeer(waiting.connection.descriptor());
  });
  for (auto& [_, network] : flooding_) network.waiting = 0;
  std::vector<Waiting> admitted;
  std::deque<Waiting> waiting;
  for (Waiting& candidate : waiting_) {
    if (const auto entry = flooding_.find(candidate.network); entry != flooding_.end()) {
      Network& network = entry->second;
      if (now < network.last_admission + network.admission_period) {
        ++network.waiting;
        waiting.push_back(std::move(candidate));
        continue;
      }
      network.last_admission = now;
    }
    admitted.push_back(std::move(candidate));
  }
  waiting_ = std::move(waiting);
  return admitted;
}

void OpenConnections::CalmDown(Clock::time_point now) {
  for (auto& [_, network] : flooding_) {
    if (now < network.last_change + kFloodPeriod) continue;
    network.last_change = now;
    network.admission_period = std::max(network.admission_period / 2, kBetweenLooks);
  }
  std::erase_if(flooding_, [](const auto& entry) {
    return entry.second.admission_period < kAdmissionPeriodMin && entry.second.waiting == 0;
  });
}

}  // namespace embershard::rpc
