// How many of the connections that were given away are still open.

#ifndef EMBERSHARD_GRPC_OPEN_CONNECTIONS_H_
#define EMBERSHARD_GRPC_OPEN_CONNECTIONS_H_

#include <sys/types.h>

#include <cstddef>
#include <vector>

#include "base/clock.h"
#include "base/file.h"

namespace embershard {

// gRPC owns a connection once it has it, and says nothing when it closes it. The descriptor
// tells: it is no longer open, or is another file. Not thread-safe.
class OpenConnections {
 public:
  // `most`: 0: any number.
  explicit OpenConnections(size_t most) : most_(most) {}

  // Whether there may be one more. If so, `connection` counts until its descriptor is closed, by
  // whomever. Looks which have been closed where they seem to be as many as may be, at most
  // once in ten milliseconds: a flood of those that are refused costs little.
  bool Add(const File& connection, Clock::time_point now);

 private:
  struct Counted {
    int descriptor;
    dev_t device;
    ino_t inode;
  };
  void Sweep();

  const size_t most_;
  std::vector<Counted> counted_;
  Clock::time_point next_sweep_ = Clock::time_point::min();
};

}  // namespace embershard

#endif  // EMBERSHARD_GRPC_OPEN_CONNECTIONS_H_
