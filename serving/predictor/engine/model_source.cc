#include "engine/model_source.h"

#include <utility>

#include "package/refusal.h"

namespace embershard {
namespace {

Status CheckNames(const std::string& model, int64_t version, const std::string& got_model,
                  int64_t got_version) {
  if (got_model != model) {
    return Refusal("manifest.json", "model", model + " (its folder)", got_model);
  }
  if (got_version == version) return {};
  return Refusal("manifest.json", "version", std::to_string(version) + " (its folder)",
                 std::to_string(got_version));
}

}  // namespace

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
