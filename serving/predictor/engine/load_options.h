// What a loader is told, and what it reports.

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/load_runner.h"
#include "engine/version_choice.h"

namespace embershard {

// Something that became of a version. "serving": it is the default version now.
struct LoadEvent {
  const char* what = "";  // "loaded", "program", "load_failed", "serving", "replaced", "unloaded".
  std::string model;      // Empty where the repository could not be read.
  int64_t version = 0;    // 0: none in particular. Labels that cannot be followed, for example.
  double seconds = 0;     // That it took. "replaced": how long no version answered.
  std::string message;    // Why it failed, and what is served instead. "program": which of several
                          // dense programs it runs, and why. Otherwise empty.
};

struct ModelLoaderOptions {
  std::vector<std::string> models;  // Empty: all that are in the repository.
  VersionRule rule;
  EngineOptions engine;

  // Most bytes that the loaded versions may take in all: see PackageOutline. 0: no limit.
  uint64_t memory_budget = 0;

  // How long a version that does not fit waits for versions that drain.
  std::chrono::milliseconds drain_wait{std::chrono::seconds(10)};

  // At most as fast are files read while others are served. 0: as fast as they can be.
  double load_bytes_per_second = 0;

  // When a load is given up.
  LoadRunnerOptions load = {};

  // Told on the thread that loads. Must not throw.
  std::function<void(const LoadEvent&)> report = [](const LoadEvent&) {};
};

}  // namespace embershard
