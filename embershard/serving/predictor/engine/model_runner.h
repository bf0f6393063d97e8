// Validates requests and runs many of them together without a queue, divided over threads.

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
  // Fewest examples per thread: with fewer, the caller would finish before another thread wakes.
  static constexpr uint64_t kShareExamples = 16;

  // First runs the model's samples, one by one and merged, and a full batch in each slot and on
  // each thread, like Engine::Start(). `slots` must be the model's. `threads`: threads of
  // PredictMerged(), the caller's included; at most the model's slots.
  static Result<std::unique_ptr<ModelRunner>> Start(std::unique_ptr<Model> model,
                                                    const BatchingOptions& batching,
                                                    float sample_tolerance, size_t threads,
                                                    const LoadContext& context = {});

  const Model& model() const { return *model_; }
  const Manifest& manifest() const { return model_->manifest(); }
  const BatchingOptions& batching() const { return batching_; }  // From CompleteOptions().
  const SchemaNames& names() const { return names_; }
  // Limits per request: the lower of the package's and the options'.
  const Limits& limits() const { return limits_; }
  const ChunkBudget& budget() const { return budget_; }

  // Counters of admitted requests and of batches.
  Telemetry& telemetry() { return telemetry_; }
  RequestCompleter& completer() { return completer_; }

  Status Admit(Request* request);

  // Validates and answers all requests; one caller at a time. Divides them over the threads in
  // about equal shares, which run in batches of at most the budget. Larger requests are split. A
  // refused request does not affect the others. Deadlines are ignored. Never throws.
  void PredictMerged(Batch requests);

  // Returns the model. Afterwards only the destructor may be called.
  std::unique_ptr<Model> TakeModel() { return std::move(model_); }

 private:
  struct Share {
    std::vector<Batch> batches;
    BatchSize last;  // Size of the last batch.
    uint64_t examples = 0;
  };

  ModelRunner(std::unique_ptr<Model> model, const BatchingOptions& complete, size_t threads);

  Status WarmUp(float tolerance, const LoadContext& context);
  // If memory runs out, requests stay in `requests`. Split requests are moved to `wholes`.
  void Divide(Batch* requests, Batch* wholes, std::vector<Share>* shares) const;
  void Cut(std::unique_ptr<Request>* whole, uint32_t examples, std::vector<Share>* shares) const;
  void Give(std::unique_ptr<Request>& request, std::vector<Share>* shares) const;
  // The caller's thread is number 0.
  void OnThreads(size_t threads, const std::function<void(size_t thread)>& work);

  std::unique_ptr<Model> model_;  // Null after TakeModel().
  const BatchingOptions batching_;
  const Limits limits_;
  const ChunkBudget budget_;
  const SchemaNames names_;
  Telemetry telemetry_;
  BatchExecutor executor_;
  RequestCompleter completer_;
  // By thread, with numbers from the last down: a new WorkerPool leases the first ones first.
  std::vector<std::shared_ptr<Slot>> buffers_;

  Mutex mutex_;
  const std::function<void(size_t)>* work_ = nullptr;  // Guarded by mutex_, and by Start(), Wait().
  std::vector<std::unique_ptr<TaskThread>> others_;    // Last, because they use the fields above.
};

}  // namespace embershard
