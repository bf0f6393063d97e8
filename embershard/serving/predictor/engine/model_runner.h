// A loaded model that is ready to run: validates requests, and runs those that are given together,
// without a queue, in shares, one on each thread.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/read_control.h"
#include "base/status.h"
#include "base/task_thread.h"
#include "batching/batch_costs.h"
#include "batching/batching_options.h"
#include "batching/request.h"
#include "batching/split_request.h"
#include "engine/batch_executor.h"
#include "engine/request_completer.h"
#include "model/model.h"
#include "model/slot.h"
#include "telemetry/telemetry.h"
#include "tensors/find_names.h"

namespace embershard {

// Thread-safe.
class ModelRunner {
 public:
  // What is worth a further thread: with fewer examples the caller is done before that one wakes.
  static constexpr uint64_t kShareExamples = 16;

  // Runs the model's samples first (warm-up), alone and merged, then a full batch in each slot and
  // on each thread, and compares their outputs: kBadPackage when they differ by more than the
  // tolerance. Samples are run in `context.background`, unless that is null. Refuses options out of
  // range and a null model (kInvalidArgument); `slots` are the model's. `threads`: of
  // PredictMerged(), the caller's and others; at most as many as the model has slots.
  static Result<std::unique_ptr<ModelRunner>> Start(std::unique_ptr<Model> model,
                                                    const BatchingOptions& batching,
                                                    float sample_tolerance, size_t threads,
                                                    const LoadContext& context = {});

  const Model& model() const { return *model_; }
  const Manifest& manifest() const { return model_->manifest(); }
  const BatchingOptions& batching() const { return batching_; }  // Without zeros.
  const SchemaNames& names() const { return names_; }
  // What one request may hold: the lesser of the package's limits and of those asked for.
  const Limits& limits() const { return limits_; }
  // Of a batch.
  const ChunkBudget& budget() const { return budget_; }

  // What is counted of requests that are admitted, and of batches.
  Telemetry& telemetry() { return telemetry_; }
  // Runs batches of admitted requests, for a queue.
  RequestCompleter& completer() { return completer_; }

  // Validates.
  Status Admit(Request* request);

  // Validates and answers all, one caller at a time: in batches of at most the budget, on each
  // thread of about as many examples, as far as they are given in such an order. A request that is
  // larger than a thread's share is cut. A refused one does not disturb the others. Deadlines do
  // not count. Never throws.
  void PredictMerged(Batch requests);

  // Gives up the model, after which nothing but the destructor may be called.
  std::unique_ptr<Model> TakeModel() { return std::move(model_); }

 private:
  struct Share {
    std::vector<Batch> batches;
    BatchSize last;  // Of the last batch.
    uint64_t examples = 0;
  };

  ModelRunner(std::unique_ptr<Model> model, const BatchingOptions& complete, size_t threads);

  Status WarmUp(float tolerance, const LoadContext& context);
  // Leaves what cannot be given for want of memory, and in `wholes` what is cut.
  void Divide(Batch* requests, Batch* wholes, std::vector<Share>* shares) const;
  void Cut(std::unique_ptr<Request>* whole, uint32_t examples, std::vector<Share>* shares) const;
  // To the share that has the least.
  void Give(std::unique_ptr<Request>& request, std::vector<Share>* shares) const;
  // Runs `work` on the caller's thread, number 0, and on the others, up to `threads`.
  void OnThreads(size_t threads, const std::function<void(size_t thread)>& work);

  std::unique_ptr<Model> model_;  // Null: it was taken.
  const BatchingOptions batching_;
  const Limits limits_;
  const ChunkBudget budget_;
  const SchemaNames names_;
  Telemetry telemetry_;
  BatchExecutor executor_;
  RequestCompleter completer_;
  // By thread, from the last number down: a new WorkerPool leases the first numbers first.
  std::vector<std::shared_ptr<Slot>> buffers_;

  Mutex mutex_;
  const std::function<void(size_t)>* work_ = nullptr;  // Guarded by mutex_, and by Start(), Wait().
  std::vector<std::unique_ptr<TaskThread>> others_;    // Last: they use the fields above.
};

}  // namespace embershard
