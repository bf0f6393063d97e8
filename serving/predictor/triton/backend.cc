// What Triton calls when it loads and unloads models and instances, and sends requests. A model's
// state is a TritonModel, an instance's a TritonInstance, the backend's an OpenModels.

#include <memory>

#include "triton/errors.h"
#include "triton/execution.h"
#include "triton/triton_model.h"

namespace embershard::triton {
namespace {

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

using embershard::Status;
using embershard::triton::Answered;
using embershard::triton::FromTriton;
using embershard::triton::TritonInstance;
using embershard::triton::TritonModel;

TRITONSERVER_Error* TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* model) {
  return Answered([model] { return embershard::triton::InitializeModel(model); });
}

TRITONSERVER_Error* TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* model) {
  return Answered([model] {
    void* state = nullptr;
    const Status status = FromTriton(TRITONBACKEND_ModelState(model, &state));
    const std::unique_ptr<TritonModel> ended(static_cast<TritonModel*>(state));
    return status;
  });
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance* instance) {
  return Answered([instance] { return embershard::triton::InitializeInstance(instance); });
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance* instance) {
  return Answered([instance] {
    void* state = nullptr;
    const Status status = FromTriton(TRITONBACKEND_ModelInstanceState(instance, &state));
    const std::unique_ptr<TritonInstance> ended(static_cast<TritonInstance*>(state));
    return status;
  });
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
