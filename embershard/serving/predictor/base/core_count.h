// The processors that this process may use, what they can do, and how many threads a library
// uses.

#pragma once

#include <filesystem>
#include <set>
#include <string>

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

// The instruction sets and other abilities of the processor, as Linux names them: "avx2", "asimd".
// Empty where `file` has no such line.
std::set<std::string> ProcessorFlags(const std::filesystem::path& file = "/proc/cpuinfo");

// Those of them that the environment variable EMBERSHARD_ISA leaves. avx2: none of AVX-512 and AMX;
// avx512: all of AVX-512 but bfloat16 and 16-bit floats, and none of AMX. Any other text: all.
std::set<std::string> UsableFlags(std::set<std::string> flags = ProcessorFlags());

// For libraries such as torch, which keep one count for each thread and one for threads to
// come, and where setting the first sets the second too. Sets the calling thread's count and
// leaves the other as it was, also where several threads do so at once. Cheap where nothing
// changes: may be called before each piece of work.
//
// `get` and `set` are the library's; nothing else in the process should call `set`
// meanwhile.
void UseThreads(int threads, int (*get)(), void (*set)(int));

}  // namespace embershard
