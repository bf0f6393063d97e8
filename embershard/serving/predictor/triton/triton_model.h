// A model that Triton has loaded: a package, and what its instances have in common.

#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "batching/batch_costs.h"
#include "batching/split_request.h"
#include "engine/batch_executor.h"
#include "model/model.h"
#include "model/slot.h"
#include "tensors/find_names.h"
#include "tensors/tensor_map.h"
#include "triton/api.h"

namespace embershard::triton {

// What Triton's dynamic batcher may put into one batch. Not thread-safe.
//
// Triton counts requests; what a batch costs are its examples and ids. A batch is closed by the
// request that would not fit any more, which begins the next. Execution cuts what is too large all
// the same: a batch that waits for its instance is asked about anew, without what it holds already.
class BatchBudget {
 public:
  explicit BatchBudget(const ChunkBudget& budget) : budget_(budget) {}

  // Whether a request of this size joins. The first always does: where it is too large for any
  // batch, it is to be cut or refused, not to wait for ever.
  bool Take(const BatchSize& size) {
    const bool fits =
        taken_.examples + size.examples <= budget_.examples && taken_.ids + size.ids <= budget_.ids;
    if (taken_.requests > 0 && !fits) return false;
    ++taken_.requests;
    taken_.examples += size.examples;
    taken_.ids += size.ids;
    return true;
  }

  const BatchSize& taken() const { return taken_; }

 private:
  ChunkBudget budget_;
  BatchSize taken_;
};

// Loads the package in a folder. One of them is the state of the backend.
using OpenModels = std::function<Result<std::unique_ptr<Model>>(const std::filesystem::path& folder,
                                                                const ModelOptions& options)>;

// Thread-safe.
class TritonModel {
 public:
  // Opens the package at <the model's folder>/<version> as config.pbtxt says, and completes that
  // file's tensors where Triton asks for it. kBadPackage also where the package says it is another
  // model or version.
  static Result<std::unique_ptr<TritonModel>> Load(TRITONBACKEND_Model* model,
                                                   const OpenModels& open);

  const Schema& schema() const { return model_->manifest().schema; }
  const Limits& limits() const { return model_->manifest().limits; }
  const TensorMap& tensors() const { return tensors_; }

  // Most that one run of the model may hold. A request that is larger is cut.
  const ChunkBudget& budget() const { return budget_; }

  // One model for all instances.
  const Model& model() const { return *model_; }
  BatchExecutor* executor() { return &executor_; }

  // The model has a slot for each instance that there was at loading. If Triton adds instances
  // later, this waits for a free slot. Destroying the pointer frees the slot.
  using LeasedSlot = std::unique_ptr<Slot, std::function<void(Slot*)>>;
  LeasedSlot LeaseSlot();

  // What is loaded, for the log.
  std::string Describe() const;

 private:
  TritonModel(std::unique_ptr<Model> model, const ChunkBudget& budget);

  const std::unique_ptr<Model> model_;
  BatchExecutor executor_;
  const ChunkBudget budget_;
  const SchemaNames names_;
  const TensorMap tensors_;

  Mutex mutex_;
  CondVar freed_;
  std::vector<std::unique_ptr<Slot>> free_ GUARDED_BY(mutex_);  // The last was used last.
};

}  // namespace embershard::triton
