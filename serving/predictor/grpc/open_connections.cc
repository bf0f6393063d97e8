#include "grpc/open_connections.h"

#include <sys/stat.h>

#include <chrono>

namespace embershard {
namespace {

constexpr std::chrono::milliseconds kBetweenSweeps{10};
constexpr std::chrono::minutes kBetweenReports{1};

}  // namespace

bool OpenConnections::Add(const File& connection, Clock::time_point now) {
  if (most_ == 0) return true;
  if (counted_.size() >= most_ && now >= next_sweep_) {
    Sweep();
    next_sweep_ = now + kBetweenSweeps;
  }
  if (counted_.size() >= most_) {
    Refuse(now);
    return false;
  }
  struct stat file = {};
  if (fstat(connection.descriptor(), &file) != 0) return false;
  counted_.push_back({connection.descriptor(), file.st_dev, file.st_ino});
  return true;
}

void OpenConnections::Refuse(Clock::time_point now) {
  const uint64_t refused = refused_.fetch_add(1, std::memory_order_relaxed) + 1;
  if (!report_ || now < next_report_) return;
  next_report_ = now + kBetweenReports;
  report_("connections are refused: expected at most " + std::to_string(most_) +
          " open (max_connections), refused so far: " + std::to_string(refused));
}

void OpenConnections::Sweep() {
  std::erase_if(counted_, [](const Counted& counted) {
    struct stat file = {};
    return fstat(counted.descriptor, &file) != 0 || file.st_dev != counted.device ||
           file.st_ino != counted.inode;
  });
}

}  // namespace embershard
