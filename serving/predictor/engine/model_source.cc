#include "engine/model_source.h"

#include <utility>

#include "package/refusal.h"

namespace embershard {

Result<MemoryParts> RepositorySource::Memory(const std::string& model, int64_t version) const {
  Result<PackageOutline> outline =
      ReadOutline(VersionFolder(repository_, model, version), options_.package.residency);
  if (!outline.ok()) return outline.status();
  if (outline->model != model) {
    return Refusal("manifest.json", "model", model + " (its folder)", outline->model);
  }
  if (outline->version != version) {
    return Refusal("manifest.json", "version", std::to_string(version) + " (its folder)",
                   std::to_string(outline->version));
  }
  return std::move(outline->memory);
}

Result<std::unique_ptr<Model>> RepositorySource::Load(const std::string& model, int64_t version,
                                                      Background* background) {
  ModelOptions options = options_;
  options.package.loaded = &loaded_;
  options.package.control = background != nullptr ? &gentle_ : &at_once_;
  options.background = background;
  return LoadPackageModel(VersionFolder(repository_, model, version), options);
}

}  // namespace embershard
