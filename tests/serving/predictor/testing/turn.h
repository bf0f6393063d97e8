// How long a thread may run at a time.

#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>

namespace embershard {

// Of the calling thread, in nanoseconds, as the kernel tells it: bytes 24 to 31 of its struct
// sched_attr. Zero before Linux 6.12, which knows no turns of a thread, and where the system does
// not tell.
inline uint64_t TurnOfThisThread() {
  std::array<char, 48> attributes = {};
  if (syscall(SYS_sched_getattr, 0, attributes.data(), attributes.size(), 0) != 0) return 0;
  uint64_t turn = 0;
  std::memcpy(&turn, attributes.data() + 24, sizeof(turn));
  return turn;
}

}  // namespace embershard
