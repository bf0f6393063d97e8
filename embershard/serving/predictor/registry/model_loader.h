// Makes what is served agree with the repository: loads, compares, swaps, unloads.

#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "engine/engine.h"
#include "package/repository.h"
#include "registry/load_runner.h"
#include "registry/memory_budget.h"
#include "registry/model_source.h"
#include "registry/served_models.h"
#include "registry/version_choice.h"

namespace embershard {

// Something that became of a version. "serving": it is the default version now.
struct LoadEvent {
  // "loaded", "program", "load_failed", "serving", "replaced", "unloaded", "differs_on_disk".
  const char* what = "";
  std::string model;    // Empty where the repository could not be read.
  int64_t version = 0;  // 0: none in particular. Labels that cannot be followed, for example.
  double seconds = 0;   // That it took. "replaced": how long no version answered.
  std::string message;  // Why it failed, and what is served instead. "program": which of several
                        // dense programs it runs, and why. "differs_on_disk": how what is
                        // served differs from the repository. Otherwise empty.
};

struct ModelLoaderOptions {
  std::vector<std::string> models;  // Empty: all that are in the repository.
  VersionRule rule;
  EngineOptions engine;

  // Most bytes that the loaded versions may take in all: see MemoryOf(). 0: no limit.
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

// Whether the old versions of a model serve until the new ones do, or go first: the memory need not
// hold both then, and nobody answers meanwhile.
enum class Swap { kBeside, kReplace };

// What became of an order.
struct LoadOutcome {
  Status status;
  double seconds = 0;           // That it took.
  double unserved_seconds = 0;  // Of these, without any version that answered: Swap::kReplace.
};

struct LoadedVersion {
  std::shared_ptr<Engine> engine;
  MemoryBudget::Claim memory;
  std::string digest;  // Of its manifest, as it was when its load began.
};

// Whatever fails, what was served is served on, and the status says both. Not thread-safe, but for
// Index(), Stop() and hung_loads().
class ModelLoader {
 public:
  // Does not own `served`, which must outlive it. Loads that were given up hold `source`, too.
  ModelLoader(ServedModels* served, std::shared_ptr<ModelSource> source,
              ModelLoaderOptions options);

  // At the start, as fast as it can be: the models and versions that the options say. Fails where
  // the default version of one does.
  Status Start();

  // Looks at the repository and the labels again. Models that somebody unloaded stay so.
  Status Refresh();

  // Version 0: what the rule and the labels say now. Another one: it, too. `unserved_seconds`: as
  // in LoadOutcome. kFailedPrecondition: kReplace would unload nothing to make room for it. Not
  // reported: a model or version that is not there, of which nothing is served.
  Status Load(const std::string& model, int64_t version, Swap swap, double* unserved_seconds);

  // Version 0: the whole model. A version that is the default or labelled is not let go.
  Status Unload(const std::string& model, int64_t version);

  // All versions in the repository, models and versions ascending, and what has become of each. Any
  // thread. While a look at the repository hangs: the versions that the last one found.
  Result<std::vector<ServedVersion>> Index() const;

  // Has what runs and what comes fail with kUnavailable within about a second. Any thread.
  void Stop();

  // Releases every version, so that those which are served no more can end. REQUIRES: nothing is
  // loaded any more.
  void ReleaseVersions() { held_.clear(); }

  // Loads that were given up and have not ended. Any thread.
  size_t hung_loads() const { return loads_.hung() + reads_.hung(); }

 private:
  using Versions = std::map<int64_t, LoadedVersion>;
  using VersionKey = std::pair<std::string, int64_t>;
  using ListedVersions = RepositoryModels::mapped_type;

  // Without the comparison of what is served with the repository.
  Status LoadNamed(const std::string& model, int64_t version, Swap swap, double* unserved_seconds);
  // Does so for one model. Its failures do not touch what it serves.
  Status Align(const std::string& model, const ListedVersions& there, bool gently);
  // Reports that nothing was loaded, and why.
  Status Failed(const std::string& model, int64_t version, Status status) const;
  // `model` or `version` (0: none is named) is not there. Not reported where only the caller
  // names it.
  Status Missing(const std::string& model, int64_t version) const;
  // As Align(), where the old versions go first. `version`: as in Load().
  Status Replace(const std::string& model, int64_t version, const ListedVersions& there,
                 double* unserved_seconds);
  // Why nothing of the model would be unloaded to make room for `version`, which is not held.
  Status NothingUnloaded(const std::string& model, int64_t version,
                         const VersionChoice& choice) const;
  Result<RepositoryModels> ListModels();
  Result<VersionChoice> Choose(const std::string& model, const ListedVersions& there);
  // Loads what is missing into `versions`; the first failure.
  Status LoadMissing(const std::string& model, const VersionChoice& choice, bool gently,
                     Versions* versions);
  // `reason`: why it is not ready.
  void SetState(const std::string& model, int64_t version, VersionState state,
                const std::string& reason) const;
  // Compares the served versions of the model with the repository, and reports each difference
  // once. Returns those whose folder now holds another package.
  std::set<int64_t> CompareWithDisk(const std::string& model);
  void SetDifference(const std::string& model, int64_t version, const std::string& difference);
  // Sets the version's state and reports.
  Result<LoadedVersion> LoadOne(const std::string& model, int64_t version, bool gently);
  // Loads the version, if the memory holds it. `gently`: with idle scheduling priority, and paced.
  // Fails as LoadRunner::Run() and MemoryBudget::Take() do.
  Result<LoadedVersion> StartEngine(const std::string& model, int64_t version, bool gently);
  // Waits for versions that drain where there is no room otherwise.
  Result<MemoryBudget::Claim> ClaimMemory(const MemoryParts& parts);
  // Serves `choice` as far as it is loaded, what was served before where it is not.
  void Publish(const std::string& model, const VersionChoice& choice, Versions versions);
  // Unloads all versions of the model but those in `kept`, and waits until they have ended.
  void GiveWay(const std::string& model, const std::set<int64_t>& kept);
  // Unloads all of `versions` but those in `kept`.
  void LetGo(const std::string& model, const std::set<int64_t>& kept, Versions* versions);
  // Until no more engines live than `most`, until `deadline`, or until Stop().
  void WaitForEnds(size_t most, Clock::time_point deadline) const;
  size_t HeldEngines() const;
  // Unloads versions of the model that were withdrawn because a batch of theirs does not end.
  void DropWithdrawn(const std::string& model);

  ServedModels* const served_;
  const std::shared_ptr<ModelSource> source_;
  const ModelLoaderOptions options_;
  std::atomic<bool> stopping_ = false;

  LoadRunner reads_;  // Of the repository's folders and labels: unload works without them.
  LoadRunner loads_;
  MemoryBudget memory_;  // A version counts until its last request has been answered.

  std::map<std::string, Versions> held_;
  std::map<std::string, std::set<int64_t>> also_;       // Versions that somebody asked for.
  std::set<std::string> unloaded_;                      // Models that somebody unloaded.
  std::map<std::string, std::set<int64_t>> withdrawn_;  // Not loaded again unless somebody asks.
  std::map<std::string, int64_t> serving_;              // Default versions, as last reported.

  mutable Mutex listed_mutex_;
  // What has become of the versions that are not served, and why.
  mutable std::map<VersionKey, std::pair<VersionState, std::string>> states_
      GUARDED_BY(listed_mutex_);
  // How versions that are served differ from the repository. Empty: they do not.
  mutable std::map<VersionKey, std::string> differences_ GUARDED_BY(listed_mutex_);
  RepositoryModels listed_ GUARDED_BY(listed_mutex_);  // As the repository was last.
};

}  // namespace embershard
