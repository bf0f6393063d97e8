#include "base/thread_usage.h"

#include <sys/resource.h>
#include <time.h>

namespace embershard {

ThreadUsage UsageOfThread() {
  rusage usage = {};
  getrusage(RUSAGE_THREAD, &usage);  // Its times lag behind by up to a tick of the system's clock.
  timespec processor = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &processor);
  return {.now = Clock::now(),
          .processor =
              std::chrono::seconds(processor.tv_sec) + std::chrono::nanoseconds(processor.tv_nsec),
          .sleeps = usage.ru_nvcsw};
}

}  // namespace embershard
