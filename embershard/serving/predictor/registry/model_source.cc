#include "registry/model_source.h"

#include <utility>

namespace embershard {

Result<VersionOutline> RepositorySource::ReadOutline(const std::string& model,
                                                     int64_t version) const {
  ASSIGN_OR_RETURN(PackageOutline outline,
                   embershard::ReadOutline(VersionFolder(repository_, model, version),
                                           options_.package.trusted));
  const Manifest& manifest = outline.manifest;
  RETURN_IF_ERROR(CheckNames(model, version, manifest.model, manifest.version));
  MemoryParts memory = MemoryOf(manifest, options_.package.residency);
  std::string digest = outline.digest;
  return VersionOutline{.memory = std::move(memory),
                        .digest = std::move(digest),
                        .package = std::make_shared<const PackageOutline>(std::move(outline))};
}

Result<std::unique_ptr<Model>> RepositorySource::Load(const std::string& model, int64_t version,
                                                      const VersionOutline& outline,
                                                      const LoadContext& context) {
  ModelOptions options = options_;
  options.package.loaded = &loaded_;
  options.package.control = context.control;
  options.background = context.background;
  auto loaded = LoadPackageModel(*outline.package, options);
  if (!loaded.ok()) return loaded;
  // The folder may hold another package since its outline was read.
  const Manifest& manifest = (*loaded)->manifest();
  RETURN_IF_ERROR(CheckNames(model, version, manifest.model, manifest.version));
  return loaded;
}

}  // namespace embershard
