// Brings what is served in line with the repository: loads, compares, swaps, lets go.

#ifndef EMBERSHARD_ENGINE_MODEL_LOADER_H_
#define EMBERSHARD_ENGINE_MODEL_LOADER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "engine/engine.h"
#include "engine/model_source.h"
#include "engine/served_models.h"
#include "engine/version_choice.h"
#include "engine/version_states.h"

namespace embershard {

// Something that became of a version. "serving": it answers now who states none.
struct LoadEvent {
  const char* what = "";  // "loaded", "load_failed", "serving", "replaced", "unloaded".
  std::string model;      // Empty where the repository could not be read.
  int64_t version = 0;    // 0: none in particular. Labels that cannot be followed, for example.
  double seconds = 0;     // That it took. "replaced": how long no version answered.
  std::string message;    // Why it failed, and what is served instead. Otherwise empty.
};

struct ModelLoaderOptions {
  std::vector<std::string> models;  // Empty: all that are in the repository.
  VersionRule rule;
  EngineOptions engine;

  // Most bytes that the loaded versions may take in all: see PackageOutline. 0: no limit.
  uint64_t memory_budget = 0;

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

// Whatever fails, what was served is served on, and the status says both. Not thread-safe, but for
// Index().
class ModelLoader {
 public:
  // Owns neither, which must outlive it.
  ModelLoader(ServedModels* served, ModelSource* source, ModelLoaderOptions options)
      : served_(served), source_(source), options_(std::move(options)) {}

  // At the start, as fast as it can be: the models and versions that the options say. Fails where
  // the default version of one does.
  Status Start();

  // Looks at the repository and the labels again. Models that somebody unloaded stay so.
  Status Refresh();

  // Version 0: what the rule and the labels say now. Another one: it, too. `unserved_seconds`: as
  // in LoadOutcome.
  Status Load(const std::string& model, int64_t version, Swap swap, double* unserved_seconds);

  // Version 0: the whole model. A version that is the default or labelled is not let go.
  Status Unload(const std::string& model, int64_t version);

  // All versions in the repository, and what has become of each. Any thread.
  Result<std::vector<ServedVersion>> Index() const;

 private:
  struct Held {
    std::shared_ptr<Engine> engine;
    MemoryParts memory;
  };
  using Versions = std::map<int64_t, Held>;

  // Brings one model in line. Its failures do not touch what it serves.
  Status Align(const std::string& model, const std::vector<int64_t>& there, bool gently);
  // Reports that nothing was loaded, and why.
  Status Failed(const std::string& model, int64_t version, Status status) const;
  // The same, where the old versions go first.
  Status Replace(const std::string& model, const std::vector<int64_t>& there,
                 double* unserved_seconds);
  Result<VersionChoice> Choose(const std::string& model, const std::vector<int64_t>& there) const;
  // Loads what is missing into `versions`; the first failure.
  Status LoadMissing(const std::string& model, const VersionChoice& choice, bool gently,
                     Versions* versions);
  // `threads`: as in Engine::Start().
  Result<Held> LoadOne(const std::string& model, int64_t version, bool gently,
                       std::shared_ptr<SlotThreads> threads);
  // Those of the version that answers who names none, where it leaves for another that does; null
  // where it stays, or where they would be of no use to that.
  std::shared_ptr<SlotThreads> ThreadsThatBecomeFree(const std::string& model,
                                                     const VersionChoice& choice) const;
  // Serves `choice` as far as it is loaded, what was served before where it is not.
  void Publish(const std::string& model, const VersionChoice& choice, Versions versions);
  // Lets go of all versions of the model but those in `kept`, and waits until they have ended.
  void GiveWay(const std::string& model, const std::set<int64_t>& kept);
  // Lets go of all of `versions` but those in `kept`.
  void LetGo(const std::string& model, const std::set<int64_t>& kept, Versions* versions) const;
  // Whether it fits beside what is held, and what it takes.
  Status CheckMemory(const std::string& model, int64_t version, MemoryParts* parts) const;
  size_t HeldEngines() const;

  ServedModels* const served_;
  ModelSource* const source_;
  const ModelLoaderOptions options_;

  std::map<std::string, Versions> held_;
  std::map<std::string, std::set<int64_t>> also_;  // Versions that somebody asked for.
  std::set<std::string> unloaded_;                 // Models that somebody unloaded.
  std::map<std::string, int64_t> serving_;         // Default versions, as last reported.

  VersionStates states_;  // Thread-safe.
};

}  // namespace embershard

#endif  // EMBERSHARD_ENGINE_MODEL_LOADER_H_
