// One call of Execute: the requests of one batch of Triton's, run and answered.

#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "batching/request.h"
#include "engine/batch_executor.h"
#include "model/slot.h"
#include "triton/triton_model.h"
#include "triton/triton_request.h"

namespace embershard::triton {

class Execution {
 public:
  // Owns none; all must outlive it. `buffers`: the instance's, for its batches.
  Execution(TRITONBACKEND_ModelInstance* instance, TritonModel* shared, Slot* buffers)
      : instance_(instance), shared_(shared), buffers_(buffers) {}

  // Answers all of them, unless memory runs out, which it throws.
  void Run(std::span<TritonRequest> all);

 private:
  // Reads and checks. Null: it was refused, and has been answered.
  std::unique_ptr<Request> Admit(TritonRequest* asked);

  // Runs what is still wanted as one batch, and answers all of it.
  void RunBatch(Batch* batch);
  void AnswerBatch(Batch* batch, Result<BatchExecutor::Responses>* responses);

  // Runs what is larger than a batch.
  void RunInChunks(std::unique_ptr<Request> whole);

  TRITONBACKEND_ModelInstance* const instance_;
  TritonModel* const shared_;
  Slot* const buffers_;
  BatchMoments moments_{.begun = SteadyNanoseconds()};  // Of the batch that runs.
};

// An instance of a model. One call at a time, from any thread.
class TritonInstance {
 public:
  // Runs the model's samples, alone and merged: kBadPackage if their outputs are not what the
  // package says. Refuses kinds other than processors. `shared` must outlive it.
  static Result<std::unique_ptr<TritonInstance>> Start(TRITONBACKEND_ModelInstance* instance,
                                                       TritonModel* shared);

  // Runs `requests` as one batch, or as few as the budget allows; answers each and releases it. A
  // request that is refused, fails or has been left by its client disturbs no other. Not ok: there
  // was no memory to begin with, and the requests are as they were.
  Status Execute(std::span<TRITONBACKEND_Request* const> requests);

 private:
  TritonInstance(TRITONBACKEND_ModelInstance* instance, TritonModel* shared)
      : instance_(instance), shared_(shared) {}

  TRITONBACKEND_ModelInstance* const instance_;
  TritonModel* const shared_;
  Slot buffers_;  // The slot that its batches lease.
};

}  // namespace embershard::triton
