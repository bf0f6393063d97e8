// What Triton calls when it loads and unloads models and instances, and sends requests. A model's
// state is a TritonModel, an instance's a TritonInstance, the backend's an OpenModels.

#include <memory>
#include <utility>

#include "triton/errors.h"
#include "triton/execution.h"
#include "triton/triton_model.h"

namespace embershard::triton {
namespace {

Result<const OpenModels*> OpenerOf(TRITONBACKEND_Model* model) {
  TRITONBACKEND_Backend* backend = nullptr;
  void* state = nullptr;
  Status status = FromTriton(TRITONBACKEND_ModelBackend(model, &backend));
  if (status.ok()) status = FromTriton(TRITONBACKEND_BackendState(backend, &state));
  if (!status.ok()) return status;
  if (state == nullptr) return Internal("the backend has not been initialized");
  return static_cast<const OpenModels*>(state);
}

Status InitializeModel(TRITONBACKEND_Model* model) {
  const Result<const OpenModels*> open = OpenerOf(model);
  if (!open.ok()) return open.status();
  Result<std::unique_ptr<TritonModel>> loaded = TritonModel::Load(model, **open);
  if (!loaded.ok()) return loaded.status();
  Status status = FromTriton(TRITONBACKEND_ModelSetState(model, loaded->get()));
  if (!status.ok()) return status;
  const TritonModel* const kept = loaded->release();
  LogTriton(TRITONSERVER_LOG_INFO, kept->Describe());
  return {};
}

Status InitializeInstance(TRITONBACKEND_ModelInstance* instance) {
  TRITONBACKEND_Model* model = nullptr;
  void* state = nullptr;
  Status status = FromTriton(TRITONBACKEND_ModelInstanceModel(instance, &model));
  if (status.ok()) status = FromTriton(TRITONBACKEND_ModelState(model, &state));
  if (!status.ok()) return status;
  Result<std::unique_ptr<TritonInstance>> started =
      TritonInstance::Start(instance, static_cast<TritonModel*>(state));
  if (!started.ok()) return started.status();
  status = FromTriton(TRITONBACKEND_ModelInstanceSetState(instance, started->get()));
  if (status.ok()) started->release();
  return status;
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
    const Status status = FromTriton(TRITONBACKEND_ModelInstanceState(instance, &state));
    if (!status.ok()) return status;
    return static_cast<TritonInstance*>(state)->Execute({requests, request_count});
  });
}
