// Functions that Triton calls to load and unload models and instances, and to run requests. Triton
// keeps a TritonModel as the state of a model, a TritonInstance for an instance, and an OpenModels
// for the backend.

#include <exception>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "batching/request.h"
#include "batching/request_validation.h"
#include "batching/split_request.h"
#include "engine/batch_executor.h"
#include "engine/self_check.h"
#include "triton/errors.h"
#include "triton/triton_model.h"
#include "triton/triton_request.h"

namespace embershard::triton {
namespace {

bool IsAbandoned(const Request& request) { return request.abandoned && request.abandoned(); }

void DropAbandoned(Batch* batch) {
  std::erase_if(*batch, [](const std::unique_ptr<Request>& request) {
    if (!IsAbandoned(*request)) return false;
    request->answer(ClientLeft(), {});
    return true;
  });
}

const char* NameOf(TRITONSERVER_InstanceGroupKind kind) {
  switch (kind) {
    case TRITONSERVER_INSTANCEGROUPKIND_CPU:
      return "KIND_CPU";
    case TRITONSERVER_INSTANCEGROUPKIND_GPU:
      return "KIND_GPU";
    case TRITONSERVER_INSTANCEGROUPKIND_MODEL:
      return "KIND_MODEL";
    default:
      return "KIND_AUTO";
  }
}

// Checks that the instance's kind is that of the plan's devices. The plan, not the instance,
// chooses the GPUs of a batch.
Status CheckKind(TRITONBACKEND_ModelInstance* instance, const Model& model) {
  TRITONSERVER_InstanceGroupKind kind = TRITONSERVER_INSTANCEGROUPKIND_AUTO;
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_ModelInstanceKind(instance, &kind)));
  const TRITONSERVER_InstanceGroupKind expected =
      model.is_on_gpus() ? TRITONSERVER_INSTANCEGROUPKIND_GPU : TRITONSERVER_INSTANCEGROUPKIND_CPU;
  if (kind == expected) return {};
  return InvalidArgument("instance_group: kind: expected ", NameOf(expected),
                         ", as the plan's devices say, got ", NameOf(kind));
}

// An instance of a model, which runs the batches of Triton's batcher. Called on any thread, once at
// a time.
class TritonInstance {
 public:
  // Creates an instance, and runs the model's samples one by one and merged: kBadPackage if their
  // outputs differ from the package's. Refuses a kind other than the plan's. `shared` must outlive
  // the instance.
  static Result<std::unique_ptr<TritonInstance>> Start(TRITONBACKEND_ModelInstance* instance,
                                                       TritonModel* shared) {
    RETURN_IF_ERROR(CheckKind(instance, shared->model()));
    std::unique_ptr<TritonInstance> started(new TritonInstance(instance, shared));
    RETURN_IF_ERROR(CheckSamples(shared->model(), kSampleTolerance, shared->executor(),
                                 shared->LeaseSlot().get()));
    return started;
  }

  // Runs `requests` in as few batches as the budget allows, and answers and releases each. A
  // request that is refused, fails or was cancelled does not affect the others. Returns an error
  // only if memory runs out at the start; the requests are then unchanged.
  Status Execute(std::span<TRITONBACKEND_Request* const> requests) {
    std::vector<TritonRequest> all;
    try {
      all.reserve(requests.size());
    } catch (const std::bad_alloc&) {
      return OutOfMemory();
    }
    for (TRITONBACKEND_Request* const request : requests) {
      all.emplace_back(instance_, request, shared_);
    }
    moments_ = {.begun = SteadyNanoseconds()};
    try {
      Run(all);
    } catch (const std::exception&) {  // Out of memory: the rest is answered below.
    }
    for (TritonRequest& triton_request : all) triton_request.Answer(OutOfMemory(), {}, {});
    return {};
  }

 private:
  TritonInstance(TRITONBACKEND_ModelInstance* instance, TritonModel* shared)
      : instance_(instance), shared_(shared) {}

  // Throws if memory runs out.
  void Run(std::span<TritonRequest> all) {
    Batch batch;
    Batch larger;
    BatchBudget budget(shared_->budget());
    for (TritonRequest& triton_request : all) {
      std::unique_ptr<Request> request = Admit(&triton_request);
      if (request == nullptr) continue;
      if (IsLarger(*request, shared_->budget())) {
        larger.push_back(std::move(request));
        continue;
      }
      if (!budget.Take(SizeLeft(*request))) {
        RunBatch(&batch);
        budget = BatchBudget(shared_->budget());
        budget.Take(SizeLeft(*request));
      }
      batch.push_back(std::move(request));
    }
    RunBatch(&batch);
    for (auto& request : larger) RunInChunks(std::move(request));
  }

  // Null if the request was refused and answered.
  std::unique_ptr<Request> Admit(TritonRequest* triton_request) {
    auto request = std::make_unique<Request>();
    request->arrival = Clock::now();
    request->abandoned = [triton_request] { return triton_request->IsCancelled(); };
    request->answer = [this, triton_request](Status status, Response response) {
      triton_request->Answer(status, response, moments_);
    };
    Status status = triton_request->Read(request.get());
    if (status.ok()) status = CheckRequest(shared_->model(), shared_->limits(), request.get());
    if (status.ok()) return request;
    request->answer(std::move(status), {});
    return nullptr;
  }

  void RunBatch(Batch* batch) {
    DropAbandoned(batch);
    if (batch->empty()) return;
    moments_.ran = SteadyNanoseconds();
    BatchTimes times;
    const IsWanted wanted = [](const Request& request) { return !IsAbandoned(request); };
    Result<BatchExecutor::Responses> responses =
        shared_->executor()->Run(*batch, wanted, shared_->LeaseSlot().get(), &times);
    moments_.done = SteadyNanoseconds();
    AnswerBatch(batch, &responses);
    batch->clear();
  }

  void AnswerBatch(Batch* batch, Result<BatchExecutor::Responses>* responses) {
    uint64_t answered = 0;
    uint64_t examples = 0;
    for (size_t i = 0; i < batch->size(); ++i) {
      const std::unique_ptr<Request> request = std::move((*batch)[i]);
      Status status = responses->ok() ? (**responses)[i].status() : responses->status();
      if (status.ok()) {
        ++answered;
        examples += request->num_examples;
        request->answer({}, std::move(*(**responses)[i]));
      } else {
        request->answer(IsAbandoned(*request) ? ClientLeft() : std::move(status), {});
      }
    }
    const uint64_t ended = SteadyNanoseconds();
    if (answered > 0) {
      LogFailure("TRITONBACKEND_ModelInstanceReportBatchStatistics",
                 TRITONBACKEND_ModelInstanceReportBatchStatistics(
                     instance_, examples, moments_.begun, moments_.ran, moments_.done, ended));
    }
    moments_ = {.begun = ended};
  }

  void RunInChunks(std::unique_ptr<Request> whole) {
    const auto split =
        std::make_shared<SplitRequest>(&shared_->schema(), shared_->budget(), *whole,
                                       [&whole](const SplitRequest&) { return std::move(whole); });
    while (whole != nullptr) {
      if (IsAbandoned(*whole)) return std::exchange(whole, nullptr)->answer(ClientLeft(), {});
      Batch chunk;
      chunk.push_back(split->TakeNext(split));
      RunBatch(&chunk);
    }
  }

  TRITONBACKEND_ModelInstance* const instance_;
  TritonModel* const shared_;
  BatchMoments moments_;  // Times of the running batch.
};

Result<const OpenModels*> OpenerOf(TRITONBACKEND_Model* model) {
  TRITONBACKEND_Backend* backend = nullptr;
  void* state = nullptr;
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_ModelBackend(model, &backend)));
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_BackendState(backend, &state)));
  if (state == nullptr) return Internal("the backend has not been initialized");
  return static_cast<const OpenModels*>(state);
}

Status InitializeModel(TRITONBACKEND_Model* model) {
  ASSIGN_OR_RETURN(const OpenModels* open, OpenerOf(model));
  ASSIGN_OR_RETURN(std::unique_ptr<TritonModel> loaded, TritonModel::Load(model, *open));
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_ModelSetState(model, loaded.get())));
  const TritonModel* const kept = loaded.release();
  LogTriton(TRITONSERVER_LOG_INFO, kept->Describe());
  return {};
}

Status InitializeInstance(TRITONBACKEND_ModelInstance* instance) {
  TRITONBACKEND_Model* model = nullptr;
  void* state = nullptr;
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_ModelInstanceModel(instance, &model)));
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_ModelState(model, &state)));
  ASSIGN_OR_RETURN(std::unique_ptr<TritonInstance> started,
                   TritonInstance::Start(instance, static_cast<TritonModel*>(state)));
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_ModelInstanceSetState(instance, started.get())));
  started.release();
  return {};
}

}  // namespace
}  // namespace embershard::triton

using embershard::triton::Answered;
using embershard::triton::FromTriton;
using embershard::triton::TritonInstance;
using embershard::triton::TritonModel;

TRITONSERVER_Error* TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* model) {
  return Answered([model] { return embershard::triton::InitializeModel(model); });
}

TRITONSERVER_Error* TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* model) {
  return embershard::triton::Finalize<TritonModel>(&TRITONBACKEND_ModelState, model);
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance* instance) {
  return Answered([instance] { return embershard::triton::InitializeInstance(instance); });
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance* instance) {
  return embershard::triton::Finalize<TritonInstance>(&TRITONBACKEND_ModelInstanceState, instance);
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance* instance,
                                                       TRITONBACKEND_Request** requests,
                                                       uint32_t request_count) {
  return Answered([instance, requests, request_count] {
    void* state = nullptr;
    RETURN_IF_ERROR(FromTriton(TRITONBACKEND_ModelInstanceState(instance, &state)));
    return static_cast<TritonInstance*>(state)->Execute({requests, request_count});
  });
}
