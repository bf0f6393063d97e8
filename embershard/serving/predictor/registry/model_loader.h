// Brings the served versions into line with the repository: loads, compares, swaps, unloads.

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

struct LoadEvent {
  // "loaded", "program", "load_failed", "serving" (it became the default version), "replaced",
  // "unloaded", "differs_on_disk".
  const char* what = "";
  std::string model;    // Empty if a refresh could not read the repository.
  int64_t version = 0;  // 0: no particular version, for example if a label cannot be resolved.
  double seconds = 0;   // Duration. "replaced": time during which no version answered.
  std::string message;  // The reason of a failure and what is served instead. "program": the dense
                        // program that was chosen, and why. "differs_on_disk": how the served
                        // version differs from the repository. Otherwise empty.
};

struct ModelLoaderOptions {
  std::vector<std::string> models;  // Empty: all models in the repository.
  VersionRule rule;
  EngineOptions engine;

  // Most bytes of all loaded versions together; see MemoryOf(). 0: no limit.
  uint64_t memory_budget = 0;

  // Time for which a version that does not fit waits for draining versions.
  std::chrono::milliseconds drain_wait{std::chrono::seconds(10)};

  // Limit of the rate at which files are read while versions are served. 0: no limit.
  double load_bytes_per_second = 0;

  LoadRunnerOptions load = {};

  // Called on the loading thread. Must not throw.
  std::function<void(const LoadEvent&)> report = [](const LoadEvent&) {};
};

// kBeside: old versions of a model serve until the new ones do. kReplace: old versions are unloaded
// first, so that memory need not hold both; nothing answers meanwhile.
enum class Swap { kBeside, kReplace };

// Result of a load or unload request.
struct LoadOutcome {
  Status status;
  double seconds = 0;           // Duration.
  double unserved_seconds = 0;  // Part of it without any version that answered (Swap::kReplace).
};

struct LoadedVersion {
  std::shared_ptr<Engine> engine;
  MemoryBudget::Claim memory;
  std::string digest;  // Digest of its manifest when its load began.
};

// If anything fails, the versions served before continue to be served, and the status says so. Not
// thread-safe, except Index(), Stop() and hung_loads().
class ModelLoader {
 public:
  ModelLoader(ServedModels* served, std::shared_ptr<ModelSource> source,
              ModelLoaderOptions options);

  // Loads the models and versions that the options name, at full speed. Fails if a model's default
  // version does.
  Status Start();

  // Rereads the repository and the labels. Models that were unloaded by request stay unloaded.
  Status Refresh();

  // Loads the versions that the version policy and the labels choose now, and also `version` unless
  // it is 0. `unserved_seconds`: see LoadOutcome. kFailedPrecondition: kReplace would unload
  // nothing. A missing model or version is not reported as an event, unless it is served.
  Status Load(const std::string& model, int64_t version, Swap swap, double* unserved_seconds);

  // Unloads a version, or the whole model for version 0. The default version and labelled versions
  // cannot be unloaded.
  Status Unload(const std::string& model, int64_t version);

  // All versions that are in the repository or served, with their states. Thread-safe. If reading
  // the repository hangs, uses the last successful read.
  Result<std::vector<ServedVersion>> Index() const;

  // Makes the current and all further calls fail with kUnavailable within about a second.
  // Thread-safe.
  void Stop();

  // Lets versions that are no longer served be destroyed. REQUIRES: no load runs or follows.
  void ReleaseVersions() { held_.clear(); }

  // Abandoned loads that have not ended. Thread-safe.
  size_t hung_loads() const { return loads_.hung() + reads_.hung(); }

 private:
  using Versions = std::map<int64_t, LoadedVersion>;
  using VersionKey = std::pair<std::string, int64_t>;
  using ListedVersions = RepositoryModels::mapped_type;

  Status LoadNamed(const std::string& model, int64_t version, Swap swap, double* unserved_seconds);
  // If this fails, the served versions of the model stay.
  Status Align(const std::string& model, const ListedVersions& there, bool gently);
  Status Failed(const std::string& model, int64_t version, Status status) const;
  // Status for a model that the repository lacks, or for the version if that is not 0. Reports an
  // event only if it is loaded.
  Status Missing(const std::string& model, int64_t version) const;
  // Align() with Swap::kReplace. `version`: see Load().
  Status Replace(const std::string& model, int64_t version, const ListedVersions& there,
                 double* unserved_seconds);
  Status NothingUnloaded(const std::string& model, int64_t version,
                         const VersionChoice& choice) const;
  Result<RepositoryModels> ListModels();
  Result<VersionChoice> Choose(const std::string& model, const ListedVersions& there);
  // Returns the first failure.
  Status LoadMissing(const std::string& model, const VersionChoice& choice, bool gently,
                     Versions* versions);
  // `reason`: why the version is not ready.
  void SetState(const std::string& model, int64_t version, VersionState state,
                const std::string& reason) const;
  // Reports each difference from the repository once. Returns the versions whose folder now holds
  // another package.
  std::set<int64_t> CompareWithDisk(const std::string& model);
  void SetDifference(const std::string& model, int64_t version, const std::string& difference);
  Result<LoadedVersion> LoadOne(const std::string& model, int64_t version, bool gently);
  // Loads a version if it fits into memory. `gently`: at idle priority and a limited rate. Fails
  // like LoadRunner::Run() and MemoryBudget::Take().
  Result<LoadedVersion> StartEngine(const std::string& model, int64_t version, bool gently);
  Result<MemoryBudget::Claim> ClaimMemory(const MemoryParts& parts);
  // A version that is not loaded is replaced by the one served before.
  void Publish(const std::string& model, const VersionChoice& choice, Versions versions);
  void UnloadAndWait(const std::string& model, const std::set<int64_t>& kept);
  void UnloadExcept(const std::string& model, const std::set<int64_t>& kept, Versions* versions);
  // Also ends at Stop().
  void WaitForEnds(size_t most, Clock::time_point deadline) const;
  size_t HeldEngines() const;
  // Unloads versions that were withdrawn because of a stuck batch.
  void DropWithdrawn(const std::string& model);

  ServedModels* const served_;
  const std::shared_ptr<ModelSource> source_;
  const ModelLoaderOptions options_;
  std::atomic<bool> stopping_ = false;

  LoadRunner reads_;  // Reads folders and labels; separate, so that unloads work while these hang.
  LoadRunner loads_;
  MemoryBudget memory_;  // A version counts until its last request was answered.

  std::map<std::string, Versions> held_;
  std::map<std::string, std::set<int64_t>> also_;       // Versions loaded by request.
  std::set<std::string> unloaded_;                      // Models unloaded by request.
  std::map<std::string, std::set<int64_t>> withdrawn_;  // Loaded again only by request.
  std::map<std::string, int64_t> serving_;              // Default versions, as last reported.

  mutable Mutex listed_mutex_;
  mutable std::map<VersionKey, std::pair<VersionState, std::string>> states_
      GUARDED_BY(listed_mutex_);
  mutable std::map<VersionKey, std::string> differences_ GUARDED_BY(listed_mutex_);
  RepositoryModels listed_ GUARDED_BY(listed_mutex_);  // The repository when it was last read.
};

}  // namespace embershard
