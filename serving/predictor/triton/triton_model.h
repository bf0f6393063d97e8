// A model that Triton has loaded: a package, and what its instances have in common.

#ifndef EMBERSHARD_TRITON_TRITON_MODEL_H_
#define EMBERSHARD_TRITON_TRITON_MODEL_H_

#include <memory>
#include <mutex>
#include <string>

#include "base/status.h"
#include "batching/request_pieces.h"
#include "package/schema_names.h"
#include "tensors/tensor_map.h"
#include "triton/api.h"
#include "triton/instance_models.h"
#include "triton/model_config.h"

namespace embershard {

// Thread-safe.
class TritonModel {
 public:
  // Opens the package at <the model's folder>/<version> as config.pbtxt says, and completes that
  // file's tensors where Triton asks for it. kBadPackage also where the package says it is another
  // model or version.
  static Result<std::unique_ptr<TritonModel>> Load(TRITONBACKEND_Model* model,
                                                   const OpenModels& open);

  const Schema& schema() const { return models_->manifest().schema; }
  const Limits& limits() const { return models_->manifest().limits; }
  const TensorMap& tensors() const { return tensors_; }

  // Most that one run of the model may hold. A request that is larger is cut.
  const PieceBudget& budget() const { return budget_; }

  // For one instance more.
  Result<std::unique_ptr<Model>> MakeModel();

  // What is loaded, for the log.
  std::string Describe() const;

 private:
  TritonModel(std::unique_ptr<InstanceModels> models, const PieceBudget& budget);

  const std::unique_ptr<InstanceModels> models_;
  const PieceBudget budget_;
  const SchemaNames names_;
  const TensorMap tensors_;
  std::mutex making_;  // One instance at a time.
};

}  // namespace embershard

#endif  // EMBERSHARD_TRITON_TRITON_MODEL_H_
