// The five functions that Triton's dynamic batcher calls to decide which requests join a batch.
// Triton keeps a Batcher for each model, and a copy of it for each batch being formed.

#include <deque>
#include <memory>

#include "base/mutex.h"
#include "triton/errors.h"
#include "triton/triton_model.h"
#include "triton/triton_request.h"

namespace embershard::triton {
namespace {

struct Batcher {
  const TritonModel* model;
  BatchBudget budget;
};

// Keeps finalized batchers for a while. Triton's batching thread starts the next batch before it
// has a request, possibly after the model was finalized.
class FinalizedBatchers {
 public:
  void Keep(std::unique_ptr<Batcher> batcher) {
    const MutexLock lock(mutex_);
    batchers_.push_back(std::move(batcher));
    if (batchers_.size() > kKept) batchers_.pop_front();
  }

 private:
  static constexpr size_t kKept = 256;
  Mutex mutex_;
  std::deque<std::unique_ptr<Batcher>> batchers_ GUARDED_BY(mutex_);
};

// Never destroyed, because Triton's thread may outlive main().
FinalizedBatchers& Finalized() {
  static auto* const finalized = new FinalizedBatchers;
  return *finalized;
}

// A request that cannot be read counts as empty; it is refused when its batch runs.
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
using embershard::triton::Batcher;
using embershard::triton::Finalized;
using embershard::triton::ToTriton;
using embershard::triton::TritonModel;

TRITONSERVER_Error* TRITONBACKEND_ModelBatcherInitialize(TRITONBACKEND_Batcher** batcher,
                                                         TRITONBACKEND_Model* model) {
  void* state = nullptr;
  if (TRITONSERVER_Error* const error = TRITONBACKEND_ModelState(model, &state)) return error;
  if (state == nullptr) {
    return ToTriton(Internal("batchstrategy.so: expected a model of this backend"));
  }
  return Answered([batcher, state] {
    const auto* const of_backend = static_cast<const TritonModel*>(state);
    *batcher = reinterpret_cast<TRITONBACKEND_Batcher*>(
        new Batcher{of_backend, embershard::triton::BatchBudget(of_backend->budget())});
    return Status();
  });
}

TRITONSERVER_Error* TRITONBACKEND_ModelBatcherFinalize(TRITONBACKEND_Batcher* batcher) {
  return Answered([batcher] {
    if (batcher != nullptr) {
      Finalized().Keep(std::unique_ptr<Batcher>(reinterpret_cast<Batcher*>(batcher)));
    }
    return Status();
  });
}

TRITONSERVER_Error* TRITONBACKEND_ModelBatchInitialize(const TRITONBACKEND_Batcher* batcher,
                                                       void** userp) {
  *userp = nullptr;
  if (batcher == nullptr) return nullptr;  // The model is finalized.
  return Answered([batcher, userp] {
    *userp = new Batcher(*reinterpret_cast<const Batcher*>(batcher));
    return Status();
  });
}

TRITONSERVER_Error* TRITONBACKEND_ModelBatchIncludeRequest(TRITONBACKEND_Request* request,
                                                           void* userp, bool* should_include) {
  *should_include = true;
  if (userp == nullptr) return nullptr;  // No batch is being formed.
  return Answered([request, userp, should_include] {
    auto* const batch = static_cast<Batcher*>(userp);
    *should_include = batch->budget.Take(embershard::triton::SizeOf(*batch->model, request));
    return Status();
  });
}

TRITONSERVER_Error* TRITONBACKEND_ModelBatchFinalize(void* userp) {
  const std::unique_ptr<Batcher> batch(static_cast<Batcher*>(userp));
  return nullptr;
}
