#include "batching/time_slice.h"

#include <cstdint>

#ifdef __linux__
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace embershard {
namespace {

// The first version of Linux's struct sched_attr, which older C libraries do not declare.
struct SchedulerAttributes {
  uint32_t size = sizeof(SchedulerAttributes);
  uint32_t policy = 0;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime = 0;  // Nanoseconds; for SCHED_OTHER the time slice.
  uint64_t deadline = 0;
  uint64_t period = 0;
};
static_assert(sizeof(SchedulerAttributes) == 48);

}  // namespace

bool SetTimeSlice(std::chrono::nanoseconds slice) {
#if defined(SYS_sched_setattr) && defined(SYS_sched_getattr)
  constexpr pid_t kThisThread = 0;
  SchedulerAttributes attributes;
  if (syscall(SYS_sched_getattr, kThisThread, &attributes, sizeof(attributes), 0) != 0) {
    return false;
  }
  if (attributes.policy != SCHED_OTHER) return false;  // Somebody chose another policy on purpose.
  attributes.runtime = static_cast<uint64_t>(slice.count());
  return syscall(SYS_sched_setattr, kThisThread, &attributes, 0) == 0;
#else
  return false;
#endif
}

}  // namespace embershard
