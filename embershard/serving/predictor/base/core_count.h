#pragma once

#include <filesystem>
#include <set>
#include <string>

namespace embershard {

// Files to read; replaced in tests.
struct CoreSources {
  std::filesystem::path cgroups = "/sys/fs/cgroup";        // Mount point of cgroups.
  std::filesystem::path own_cgroup = "/proc/self/cgroup";  // The cgroups of this process.
};

// Whole cores of CPU time that the process's cgroup (v1 or v2) and its parents allow, at least 1. A
// quota of 2.5 cores counts as 2, because a process that exceeds its quota is stopped for the rest
// of the period of 0.1 s. 0 if there is no limit.
int QuotaCores(const CoreSources& sources = {});

// Cores that the process may use (taskset, cpuset), limited by QuotaCores(). At least 1.
int CoreCount(const CoreSources& sources = {});

// The processor's flags with Linux's names, such as "avx2" or "asimd". Empty if `file` lists none.
std::set<std::string> ProcessorFlags(const std::filesystem::path& file = "/proc/cpuinfo");

// The flags that the environment variable EMBERSHARD_ISA allows. avx2: no AVX-512 and no AMX;
// avx512: AVX-512 without bfloat16 and fp16, and no AMX; any other text: all.
std::set<std::string> UsableFlags(std::set<std::string> flags = ProcessorFlags());

// Sets a library's thread count for the calling thread only. Libraries such as torch keep a count
// per thread and one for new threads, and setting the first also sets the second; this restores the
// second. Thread-safe if nothing else calls `set` meanwhile, and cheap if nothing changes.
void UseThreads(int threads, int (*get)(), void (*set)(int));

}  // namespace embershard
