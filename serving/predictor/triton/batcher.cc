// The five functions by which Triton's dynamic batcher asks what may join a batch. What it holds
// for them: a batcher is the model's TritonModel, a batch in the making a FormingBatch.

#include <memory>

#include "triton/batch_budget.h"
#include "triton/errors.h"
#include "triton/triton_model.h"
#include "triton/triton_request.h"

namespace embershard::triton {
namespace {

struct FormingBatch {
  const TritonModel* model;
  BatchBudget budget;
};

// A request that cannot be read takes no room: it is refused when its batch runs.
BatchSize SizeOf(const TritonModel& model, TRITONBACKEND_Request* request) {
  RequestReader reader;
  if (!reader.ReadShapes(request).ok()) return {.requests = 1};
  return model.tensors().SizeOf(reader.inputs(), reader.parameters().num_examples);
}

}  // namespace
}  // namespace embershard::triton

using embershard::Internal;
using embershard::Status;
using embershard::triton::Answered;
using embershard::triton::FormingBatch;
using embershard::triton::ToTriton;
using embershard::triton::TritonModel;

TRITONSERVER_Error* TRITONBACKEND_ModelBatcherInitialize(TRITONBACKEND_Batcher** batcher,
                                                         TRITONBACKEND_Model* model) {
  void* state = nullptr;
  if (TRITONSERVER_Error* const error = TRITONBACKEND_ModelState(model, &state)) return error;
  if (state == nullptr) {
    return ToTriton(Internal("batchstrategy.so: expected a model of this backend"));
  }
  *batcher = static_cast<TRITONBACKEND_Batcher*>(state);
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelBatcherFinalize(TRITONBACKEND_Batcher*) {
  return nullptr;  // It is the model's.
}

TRITONSERVER_Error* TRITONBACKEND_ModelBatchInitialize(const TRITONBACKEND_Batcher* batcher,
                                                       void** userp) {
  *userp = nullptr;
  return Answered([batcher, userp] {
    const auto* const model = reinterpret_cast<const TritonModel*>(batcher);
    *userp = new FormingBatch{model, embershard::triton::BatchBudget(model->budget())};
    return Status();
  });
}

TRITONSERVER_Error* TRITONBACKEND_ModelBatchIncludeRequest(TRITONBACKEND_Request* request,
                                                           void* userp, bool* should_include) {
  *should_include = true;
  if (userp == nullptr) return nullptr;  // Nothing is known of the batch.
  return Answered([request, userp, should_include] {
    auto* const batch = static_cast<FormingBatch*>(userp);
    *should_include = batch->budget.Take(embershard::triton::SizeOf(*batch->model, request));
    return Status();
  });
}

TRITONSERVER_Error* TRITONBACKEND_ModelBatchFinalize(void* userp) {
  const std::unique_ptr<FormingBatch> batch(static_cast<FormingBatch*>(userp));
  return nullptr;
}
