// Loads one version, if the memory holds it.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/load_options.h"
#include "engine/load_runner.h"
#include "engine/model_source.h"
#include "engine/served_models.h"

namespace embershard {

// For example "model 'ranker' version 3".
std::string VersionText(const std::string& model, int64_t version);

// What the loaded versions take of the memory, and whether one more fits.
//
// Memory is taken from a claim on until its last copy has gone: by versions that are served, by
// those that still drain, and by loads that were given up. Parts that several have count once.
// Not thread-safe, but copies of a claim may go on any thread.
class MemoryBudget {
 public:
  using Claim = std::shared_ptr<const MemoryParts>;
  enum class Holder { kServed, kDraining, kGivenUp };

  // 0: no limit.
  explicit MemoryBudget(uint64_t bytes_max) : bytes_max_(bytes_max) {}

  // kResourceExhausted, with what takes how much, where it does not fit.
  Result<Claim> Take(MemoryParts parts);

  // Who has the claim from now on.
  void SetHolder(const Claim& claim, Holder holder);

  // Whether versions that drain will give memory back.
  bool is_draining() const;

 private:
  struct Entry {
    std::weak_ptr<const MemoryParts> claim;
    Holder holder = Holder::kServed;
  };

  // Adds the parts of what `holder` has to `taken`; the bytes of those that are new there.
  uint64_t AddParts(Holder holder, MemoryParts* taken) const;

  const uint64_t bytes_max_;
  std::vector<Entry> entries_;
};

struct LoadedVersion {
  std::shared_ptr<Engine> engine;
  MemoryBudget::Claim memory;
};

// Not thread-safe, but for Stop() and hung().
class VersionLoader {
 public:
  // Owns neither `served` nor `options`, which must outlive it. Loads that were given up hold
  // `source`, too.
  VersionLoader(ServedModels* served, std::shared_ptr<ModelSource> source,
                const ModelLoaderOptions* options)
      : served_(served),
        source_(std::move(source)),
        options_(options),
        runner_(options->load),
        memory_(options->memory_budget) {}

  // `gently`: with idle scheduling priority, and paced. Fails as LoadRunner::Run() and
  // MemoryBudget::Take() do.
  Result<LoadedVersion> Load(const std::string& model, int64_t version, bool gently);

  // The version is served no more. Its memory counts until its last request has been answered.
  void LetGo(const LoadedVersion& loaded);

  // Has what runs and what comes fail with kUnavailable within about a second. Any thread.
  void Stop();

  // Loads that were given up and have not ended. Any thread.
  size_t hung() const { return runner_.hung(); }

 private:
  // Waits for versions that drain where there is no room otherwise.
  Result<MemoryBudget::Claim> ClaimMemory(const MemoryParts& parts);

  ServedModels* const served_;
  const std::shared_ptr<ModelSource> source_;
  const ModelLoaderOptions* const options_;
  LoadRunner runner_;
  MemoryBudget memory_;
  std::atomic<bool> stopping_ = false;
};

}  // namespace embershard
