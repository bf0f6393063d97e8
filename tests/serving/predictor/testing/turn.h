// How long a thread may run at a time.

#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>

namespace embershard {

// Time slice of the calling thread in nanoseconds, from bytes 24 to 31 of the kernel's struct
// sched_attr. Zero before Linux 6.12, which has no time slice for each thread, and if the call
// fails.
inline uint64_t TurnOfThisThread() {
  std::array<char, 48> attributes = {};
  if (syscall(SYS_sched_getattr, 0, attributes.data(), attributes.size(), 0) != 0) return 0;
  uint64_t turn = 0;
  std::memcpy(&turn, attributes.data() + 24, sizeof(turn));
  return turn;
}

}  // namespace embershard
