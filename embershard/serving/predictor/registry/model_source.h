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

struct VersionOutline {
  MemoryParts memory;                                       // Memory that the version needs.
  std::string digest;                                       // Digest of its manifest.
  std::shared_ptr<const PackageOutline> package = nullptr;  // Null for a source without packages.
};

// An interface, so that tests of loading can use tiny models. Thread-safe.
class ModelSource {
 public:
  virtual ~ModelSource() = default;

  virtual Result<RepositoryModels> List() const = 0;
  virtual Result<Labels> ReadLabels(const std::string& model) const = 0;

  // Digest of the manifest in the repository now. kNotFound if it is missing.
  virtual Result<std::string> Digest(const std::string& model, int64_t version) const = 0;

  // kBadPackage if the manifest belongs to another model or version.
  virtual Result<VersionOutline> ReadOutline(const std::string& model, int64_t version) const = 0;

  // Checks all of the version.
  virtual Result<std::unique_ptr<Model>> Load(const std::string& model, int64_t version,
                                              const VersionOutline& outline,
                                              const LoadContext& context) = 0;
};

// A folder with <model>/<version>/ packages. Data that several versions share is in memory once.
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
