#include <utility>

#include "package/loaded_chunks.h"
#include "triton/instance_models.h"

namespace embershard {
namespace {

class PackageModels final : public InstanceModels {
 public:
  PackageModels(std::unique_ptr<const Package> package, ModelOptions options)
      : package_(std::move(package)), options_(std::move(options)) {}

  const Manifest& manifest() const override { return package_->manifest(); }
  Result<std::unique_ptr<Model>> Make() override { return MakePackageModel(package_, options_); }

 private:
  const std::shared_ptr<const Package> package_;
  const ModelOptions options_;
};

}  // namespace

OpenModels OpenPackageModels() {
  return [loaded = std::make_shared<LoadedChunks>()](
             const std::filesystem::path& folder,
             ModelOptions options) -> Result<std::unique_ptr<InstanceModels>> {
    options.package.loaded = loaded.get();
    Result<std::unique_ptr<Package>> package = Package::Open(folder, options.package);
    if (!package.ok()) return package.status();
    options.package.loaded = nullptr;  // It has been read.
    return std::unique_ptr<InstanceModels>(
        std::make_unique<PackageModels>(std::move(*package), std::move(options)));
  };
}

}  // namespace embershard
