// A model that Triton has loaded: a package, and the state that its instances share.

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

// Decides which requests Triton's dynamic batcher may put into a batch. Not thread-safe.
//
// Triton limits requests, while examples and ids determine the cost. The first request that does
// not fit closes the batch and starts the next. Batches may still be too large, because Triton
// starts counting again for a batch that waits for its instance; execution then splits them.
class BatchBudget {
 public:
  explicit BatchBudget(const ChunkBudget& budget) : budget_(budget) {}

  // Returns true if a request of this size joins the batch. The first one always does: if it is
  // larger than any batch, it is split or refused later.
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

// The backend keeps such a function as its state.
using OpenModels = std::function<Result<std::unique_ptr<Model>>(const std::filesystem::path& folder,
                                                                const ModelOptions& options)>;

// Thread-safe.
class TritonModel {
 public:
  // Opens <the model's folder>/<version> with the settings of config.pbtxt, and adds tensors to
  // that configuration if Triton asks for it. kBadPackage also for another model's or version's
  // package.
  static Result<std::unique_ptr<TritonModel>> Load(TRITONBACKEND_Model* model,
                                                   const OpenModels& open);

  const Schema& schema() const { return model_->manifest().schema; }
  const Limits& limits() const { return model_->manifest().limits; }
  const TensorMap& tensors() const { return tensors_; }

  // Larger requests are split.
  const ChunkBudget& budget() const { return budget_; }

  const Model& model() const { return *model_; }
  BatchExecutor* executor() { return &executor_; }

  // Destroying the pointer returns the slot. There are as many slots as instances at loading; if
  // Triton adds instances later, this waits for a free one.
  using LeasedSlot = std::unique_ptr<Slot, std::function<void(Slot*)>>;
  LeasedSlot LeaseSlot();

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
  std::vector<std::unique_ptr<Slot>> free_
      GUARDED_BY(mutex_);  // The most recently used one is last.
};

}  // namespace embershard::triton
