// Where versions of models come from.

#ifndef EMBERSHARD_ENGINE_MODEL_SOURCE_H_
#define EMBERSHARD_ENGINE_MODEL_SOURCE_H_

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "base/background.h"
#include "base/read_control.h"
#include "base/status.h"
#include "model/model.h"
#include "package/labels.h"
#include "package/loaded_chunks.h"
#include "package/package.h"
#include "package/repository.h"

namespace embershard {

// An interface so that the rules of loading are tested with models made of a few lines. Final
// implementations: RepositorySource. One thread loads; the rest any thread may call.
class ModelSource {
 public:
  virtual ~ModelSource() = default;

  virtual Result<RepositoryModels> List() const = 0;
  virtual Result<Labels> ReadLabels(const std::string& model) const = 0;

  // What the version takes of the memory. kBadPackage where it says it is another one.
  virtual Result<MemoryParts> Memory(const std::string& model, int64_t version) const = 0;

  // Opens and checks it whole. `background`: where that is done, no faster than leaves those who
  // are served undisturbed; null: on the calling thread, as fast as it can be.
  virtual Result<std::unique_ptr<Model>> Load(const std::string& model, int64_t version,
                                              Background* background) = 0;

  // Has every Load() fail, now and later. Any thread.
  virtual void Stop() = 0;
};

// A folder of <model>/<version>/. What several versions have in common is in memory once.
class RepositorySource final : public ModelSource {
 public:
  // `bytes_per_second`: at most as fast are files read in the background. 0: as fast as they can
  // be.
  RepositorySource(std::filesystem::path repository, const ModelOptions& options,
                   double bytes_per_second)
      : repository_(std::move(repository)),
        options_(options),
        gentle_(bytes_per_second),
        at_once_(0) {}

  Result<RepositoryModels> List() const override { return ListRepository(repository_); }
  Result<Labels> ReadLabels(const std::string& model) const override {
    return embershard::ReadLabels(repository_ / model);
  }
  Result<MemoryParts> Memory(const std::string& model, int64_t version) const override;
  Result<std::unique_ptr<Model>> Load(const std::string& model, int64_t version,
                                      Background* background) override;
  void Stop() override {
    gentle_.Stop();
    at_once_.Stop();
  }

 private:
  const std::filesystem::path repository_;
  const ModelOptions options_;
  ReadControl gentle_;
  ReadControl at_once_;
  LoadedChunks loaded_;
};

}  // namespace embershard

#endif  // EMBERSHARD_ENGINE_MODEL_SOURCE_H_
