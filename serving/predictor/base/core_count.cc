#include "base/core_count.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

namespace embershard {
namespace {

// That the main thread may run on. std::thread::hardware_concurrency() counts the machine's: since
// glibc 2.35 it ignores the affinity mask. 0: not known, as beyond 1024 processors.
int AllowedCores() {
  cpu_set_t allowed;
  if (sched_getaffinity(getpid(), sizeof(allowed), &allowed) != 0) return 0;
  return CPU_COUNT(&allowed);
}

// Of the line "0::/a/b", which is cgroup v2's, "a/b".
std::filesystem::path OwnCgroup(const std::filesystem::path& file) {
  constexpr std::string_view kUnified = "0::/";
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with(kUnified)) return line.substr(kUnified.size());
  }
  return {};
}

// cpu.max is "QUOTA PERIOD" in microseconds, or "max PERIOD".
std::optional<int> CoresOf(const std::filesystem::path& cgroup) {
  std::ifstream stream(cgroup / "cpu.max");
  int64_t quota = 0;
  int64_t period = 0;
  if (!(stream >> quota >> period) || quota <= 0 || period <= 0) return {};
  return static_cast<int>(std::clamp<int64_t>(quota / period, 1, 1 << 20));
}

}  // namespace

int QuotaCores(const CoreSources& sources) {
  std::optional<int> least;
  // In a container the folder is often the container's own, while the name is the machine's: what
  // does not exist bounds nothing.
  std::filesystem::path own = OwnCgroup(sources.own_cgroup);
  while (true) {
    const std::optional<int> cores = CoresOf(sources.cgroups / own);
    if (cores && (!least || *cores < *least)) least = cores;
    if (!own.has_relative_path()) return least.value_or(0);
    own = own.parent_path();
  }
}

int CoreCount(const CoreSources& sources) {
  const int allowed = AllowedCores();
  const int cores =
      allowed > 0 ? allowed : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int quota = QuotaCores(sources);
  return quota > 0 ? std::min(cores, quota) : cores;
}

}  // namespace embershard
