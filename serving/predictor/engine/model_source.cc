#include "engine/model_source.h"

#include <utility>

namespace embershard {

Result<MemoryParts> RepositorySource::Memory(const std::string& model, int64_t version) const {
  ASSIGN_OR_RETURN(PackageOutline outline, ReadOutline(VersionFolder(repository_, model, version),
                                                       options_.package.residency));
  RETURN_IF_ERROR(CheckNames(model, version, outline.model, outline.version));
  return std::move(outline.memory);
}

Result<std::unique_ptr<Model>> RepositorySource::Load(const std::string& model, int64_t version,
                                                      const LoadContext& context) {
  ModelOptions options = options_;
  options.package.loaded = &loaded_;
  options.package.control = context.control;
  options.background = context.background;
  auto loaded = LoadPackageModel(VersionFolder(repository_, model, version), options);
  if (!loaded.ok()) return loaded;
  // Another package may have taken the folder since its outline was read.
  const Manifest& manifest = (*loaded)->manifest();
  RETURN_IF_ERROR(CheckNames(model, version, manifest.model, manifest.version));
  return loaded;
}

}  // namespace embershard
