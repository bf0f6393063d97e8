// How many of the connections that were given away are still open.

#ifndef EMBERSHARD_GRPC_OPEN_CONNECTIONS_H_
#define EMBERSHARD_GRPC_OPEN_CONNECTIONS_H_

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file.h"

namespace embershard {

// gRPC owns a connection once it has it, and says nothing when it closes it. The descriptor
// tells: it is no longer open, or is another file. Not thread-safe, but for refused().
class OpenConnections {
 public:
  // Gets words for an operator: who is refused here learns nothing but that. May be empty.
  using Report = std::function<void(const std::string& words)>;

  // `most`: 0: any number. `report` is called by Add(), once a minute at most.
  explicit OpenConnections(size_t most, Report report = {})
      : most_(most), report_(std::move(report)) {}

  // Whether there may be one more. If so, `connection` counts until its descriptor is closed, by
  // whomever. Looks which have been closed where they seem to be as many as may be, at most
  // once in ten milliseconds: a flood of those that are refused costs little.
  bool Add(const File& connection, Clock::time_point now);

  // Connections for which there was no room.
  uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }

 private:
  struct Counted {
    int descriptor;
    dev_t device;
    ino_t inode;
  };
  void Sweep();
  void Refuse(Clock::time_point now);

  const size_t most_;
  const Report report_;
  std::atomic<uint64_t> refused_ = 0;
  Clock::time_point next_report_ = Clock::time_point::min();
  std::vector<Counted> counted_;
  Clock::time_point next_sweep_ = Clock::time_point::min();
};

}  // namespace embershard

#endif  // EMBERSHARD_GRPC_OPEN_CONNECTIONS_H_
