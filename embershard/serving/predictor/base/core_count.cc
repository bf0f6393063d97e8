#include "base/core_count.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>

#include "base/mutex.h"

namespace embershard {
namespace {

// Number of cores in the main thread's affinity mask, which std::thread::hardware_concurrency()
// ignores since glibc 2.35. 0 if unknown, for example beyond 1024 processors.
int AllowedCores() {
  cpu_set_t allowed;
  if (sched_getaffinity(getpid(), sizeof(allowed), &allowed) != 0) return 0;
  return CPU_COUNT(&allowed);
}

std::optional<int> WholeCores(int64_t quota, int64_t period) {
  if (quota <= 0 || period <= 0) return {};
  return static_cast<int>(std::clamp<int64_t>(quota / period, 1, 1 << 20));
}

// cpu.max is "QUOTA PERIOD" in microseconds, or "max PERIOD".
std::optional<int> CoresOfVersion2(const std::filesystem::path& cgroup) {
  std::ifstream stream(cgroup / "cpu.max");
  int64_t quota = 0;
  int64_t period = 0;
  if (!(stream >> quota >> period)) return {};
  return WholeCores(quota, period);
}

// Quota and period in microseconds; a quota of -1 means none.
std::optional<int> CoresOfVersion1(const std::filesystem::path& cgroup) {
  std::ifstream quota_stream(cgroup / "cpu.cfs_quota_us");
  std::ifstream period_stream(cgroup / "cpu.cfs_period_us");
  int64_t quota = 0;
  int64_t period = 0;
  if (!(quota_stream >> quota) || !(period_stream >> period)) return {};
  return WholeCores(quota, period);
}

// One line of /proc/self/cgroup: "HIERARCHY:CONTROLLERS:/NAME".
struct OwnCgroup {
  bool is_version_2 = false;  // Its hierarchy is 0, and it names no controllers.
  std::string controllers;
  std::filesystem::path name;  // Without the first slash.
};

std::optional<OwnCgroup> ParseCgroup(const std::string& line) {
  const size_t controllers = line.find(':');
  if (controllers == std::string::npos) return {};
  const size_t name = line.find(":/", controllers + 1);
  if (name == std::string::npos) return {};
  return OwnCgroup{.is_version_2 = line.starts_with("0::"),
                   .controllers = line.substr(controllers + 1, name - controllers - 1),
                   .name = line.substr(name + 2)};
}

// The minimum of `least` and the limits of the cgroup `own` below `root` and its parents. In a
// container, `root` is often the container's own cgroup while the name is the machine's; cgroups
// that do not exist are ignored.
std::optional<int> LeastCores(std::optional<int> least, const std::filesystem::path& root,
                              std::filesystem::path own,
                              std::optional<int> (*cores_of)(const std::filesystem::path&)) {
  while (true) {
    const std::optional<int> cores = cores_of(root / own);
    if (cores && (!least || *cores < *least)) least = cores;
    if (!own.has_relative_path()) return least;
    own = own.parent_path();
  }
}

}  // namespace

int QuotaCores(const CoreSources& sources) {
  std::optional<int> least = LeastCores({}, sources.cgroups, {}, CoresOfVersion2);
  std::ifstream stream(sources.own_cgroup);
  for (std::string line; std::getline(stream, line);) {
    const std::optional<OwnCgroup> own = ParseCgroup(line);
    if (!own) continue;
    if (own->is_version_2) {
      least = LeastCores(least, sources.cgroups, own->name, CoresOfVersion2);
    } else if (("," + own->controllers + ",").find(",cpu,") != std::string::npos) {
      for (const std::string& mount : {own->controllers, std::string("cpu")}) {
        least = LeastCores(least, sources.cgroups / mount, own->name, CoresOfVersion1);
      }
    }
  }
  return least.value_or(0);
}

int CoreCount(const CoreSources& sources) {
  const int allowed = AllowedCores();
  const int cores =
      allowed > 0 ? allowed : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int quota = QuotaCores(sources);
  return quota > 0 ? std::min(cores, quota) : cores;
}

std::set<std::string> ProcessorFlags(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::set<std::string> flags;
  for (std::string line; std::getline(stream, line);) {
    std::istringstream words(line);
    std::string key;
    words >> key;
    if (key != "flags" && key != "Features") continue;  // x86 and arm.
    for (std::string word; words >> word;) {
      if (word != ":") flags.insert(word);
    }
    break;  // The other processors have the same flags.
  }
  return flags;
}

std::set<std::string> UsableFlags(std::set<std::string> flags) {
  const char* const requested = std::getenv("EMBERSHARD_ISA");
  const std::string_view widest = requested != nullptr ? requested : "";
  if (widest != "avx2" && widest != "avx512") return flags;
  std::erase_if(flags, [&](const std::string& flag) {
    const bool newer = flag == "avx512_bf16" || flag == "avx512_fp16";
    return flag.starts_with("amx") || newer || (widest == "avx2" && flag.starts_with("avx512"));
  });
  return flags;
}

void UseThreads(int threads, int (*get)(), void (*set)(int)) {
  if (get() == threads) return;
  static Mutex mutex;
  const MutexLock lock(mutex);
  // Read on a new thread: this one may have started while another thread held the lock, with the
  // count that the other had set.
  int of_new_threads = 0;
  std::thread([&of_new_threads, get] { of_new_threads = get(); }).join();
  set(threads);
  std::thread([of_new_threads, set] { set(of_new_threads); }).join();
}

}  // namespace embershard
