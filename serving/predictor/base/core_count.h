// How much of the machine this process may use.

#ifndef EMBERSHARD_BASE_CORE_COUNT_H_
#define EMBERSHARD_BASE_CORE_COUNT_H_

#include <filesystem>

namespace embershard {

// Where the system says so; tests have files of their own.
struct CoreSources {
  std::filesystem::path cgroups = "/sys/fs/cgroup";        // Where cgroups are mounted.
  std::filesystem::path own_cgroup = "/proc/self/cgroup";  // Which of them this process is in.
};

// Whole cores of CPU time that the process's cgroup (v1 or v2) and those above it allow, at least
// 1: of a quota of 2.5 cores 2, since who uses up its quota is stopped for the rest of a tenth of a
// second. 0 where nothing bounds it.
int QuotaCores(const CoreSources& sources = {});

// How many threads have a core each: the cores that the process may run on (taskset, cpuset), and
// no more than QuotaCores(). At least 1.
int CoreCount(const CoreSources& sources = {});

}  // namespace embershard

#endif  // EMBERSHARD_BASE_CORE_COUNT_H_
