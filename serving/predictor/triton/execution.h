// One call of Execute: the requests that Triton has brought together, run and answered.

#ifndef EMBERSHARD_TRITON_EXECUTION_H_
#define EMBERSHARD_TRITON_EXECUTION_H_

#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "batching/request.h"
#include "engine/batch_executor.h"
#include "triton/triton_model.h"
#include "triton/triton_request.h"

namespace embershard {

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
  void RunInPieces(std::unique_ptr<Request> whole);

  TRITONBACKEND_ModelInstance* const instance_;
  TritonModel* const shared_;
  Slot* const buffers_;
  BatchMoments moments_{.begun = SteadyNanoseconds()};  // Of the batch that runs.
};

}  // namespace embershard

#endif  // EMBERSHARD_TRITON_EXECUTION_H_
