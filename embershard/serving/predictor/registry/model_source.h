// Where versions of models come from.

#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "base/status.h"
#include "model/model.h"
#include "package/labels.h"
#include "package/package.h"
#include "package/repository.h"
#include "package/tables.h"
#include "registry/load_runner.h"

namespace embershard {

// A version whose manifest has been read.
struct VersionOutline {
  MemoryParts memory;                                       // What the version takes.
  std::string digest;                                       // Of its manifest.
  std::shared_ptr<const PackageOutline> package = nullptr;  // Null: of a source without packages.
};

// An interface so that the rules of loading are tested with models made of a few lines. Final
// implementations: RepositorySource. Thread-safe.
class ModelSource {
 public:
  virtual ~ModelSource() = default;

  virtual Result<RepositoryModels> List() const = 0;
  virtual Result<Labels> ReadLabels(const std::string& model) const = 0;

  // The digest of the version's manifest as it is in the repository now. kNotFound: it is not
  // there.
  virtual Result<std::string> Digest(const std::string& model, int64_t version) const = 0;

  // Reads the version's manifest. kBadPackage: it says that it is another one.
  virtual Result<VersionOutline> ReadOutline(const std::string& model, int64_t version) const = 0;

  // Opens the version of that outline, and checks it whole.
  virtual Result<std::unique_ptr<Model>> Load(const std::string& model, int64_t version,
                                              const VersionOutline& outline,
                                              const LoadContext& context) = 0;
};

// A folder of <model>/<version>/. What several versions have in common is in memory once.
class RepositorySource final : public ModelSource {
 public:
  RepositorySource(std::filesystem::path repository, const ModelOptions& options)
      : repository_(std::move(repository)), options_(options) {}

  Result<RepositoryModels> List() const override { return ListRepository(repository_); }
  Result<Labels> ReadLabels(const std::string& model) const override {
    return embershard::ReadLabels(repository_ / model);
  }
  Result<std::string> Digest(const std::string& model, int64_t version) const override {
    return ReadManifestDigest(VersionFolder(repository_, model, version));
  }
  Result<VersionOutline> ReadOutline(const std::string& model, int64_t version) const override;
  Result<std::unique_ptr<Model>> Load(const std::string& model, int64_t version,
                                      const VersionOutline& outline,
                                      const LoadContext& context) override;

 private:
  const std::filesystem::path repository_;
  const ModelOptions options_;
  LoadedChunks loaded_;
};

}  // namespace embershard
