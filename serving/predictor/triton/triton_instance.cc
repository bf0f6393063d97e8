#include "triton/triton_instance.h"

#include <exception>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/out_of_memory.h"
#include "engine/self_check.h"
#include "triton/errors.h"
#include "triton/execution.h"
#include "triton/triton_request.h"

namespace embershard {
namespace {

Status CheckKind(TRITONBACKEND_ModelInstance* instance) {
  TRITONSERVER_InstanceGroupKind kind = TRITONSERVER_INSTANCEGROUPKIND_AUTO;
  Status status = FromTriton(TRITONBACKEND_ModelInstanceKind(instance, &kind));
  if (!status.ok() || kind == TRITONSERVER_INSTANCEGROUPKIND_CPU) return status;
  return InvalidArgument("instance_group: kind: expected KIND_CPU, got " +
                         std::string(kind == TRITONSERVER_INSTANCEGROUPKIND_GPU     ? "KIND_GPU"
                                     : kind == TRITONSERVER_INSTANCEGROUPKIND_MODEL ? "KIND_MODEL"
                                                                                    : "KIND_AUTO"));
}

}  // namespace

Result<std::unique_ptr<TritonInstance>> TritonInstance::Start(TRITONBACKEND_ModelInstance* instance,
                                                              TritonModel* shared) {
  if (Status status = CheckKind(instance); !status.ok()) return status;
  std::unique_ptr<TritonInstance> started(new TritonInstance(instance, shared));
  Status status =
      CheckSamples(shared->model(), kSampleTolerance, shared->executor(), &started->buffers_);
  if (!status.ok()) return status;
  return started;
}

Status TritonInstance::Execute(std::span<TRITONBACKEND_Request* const> requests) {
  std::vector<TritonRequest> all;
  try {
    all.reserve(requests.size());
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  }
  for (TRITONBACKEND_Request* const request : requests) {
    all.emplace_back(instance_, request, shared_);
  }
  Execution execution(instance_, shared_, &buffers_);
  try {
    execution.Run(all);
  } catch (const std::exception&) {  // Memory has run out: the rest is answered below.
  }
  for (TritonRequest& asked : all) asked.Answer(OutOfMemory(), {}, {});
  return {};
}

}  // namespace embershard
