// Where the models of instances come from.

#ifndef EMBERSHARD_TRITON_INSTANCE_MODELS_H_
#define EMBERSHARD_TRITON_INSTANCE_MODELS_H_

#include <filesystem>
#include <functional>
#include <memory>

#include "base/status.h"
#include "model/model.h"

namespace embershard {

// One package, which all instances of a model share. An interface so that this room is tested with
// models made of a few lines. Final implementations: PackageModels.
class InstanceModels {
 public:
  virtual ~InstanceModels() = default;

  virtual const Manifest& manifest() const = 0;

  // One model more, with a lookup and a dense program of its own. One call at a time. The model may
  // outlive this.
  virtual Result<std::unique_ptr<Model>> Make() = 0;
};

// Opens and checks the package in a folder. One of them is the state of the backend.
using OpenModels = std::function<Result<std::unique_ptr<InstanceModels>>(
    const std::filesystem::path& folder, const ModelOptions& options)>;

// Packages as they lie on disk. Versions that are loaded at the same time have what they have in
// common in memory once. package_models.cc
OpenModels OpenPackageModels();

}  // namespace embershard

#endif  // EMBERSHARD_TRITON_INSTANCE_MODELS_H_
