// What Triton calls when it loads and unloads the backend. The one file of this room that chooses
// how packages become models, and with that needs torch.

#include <cstdint>
#include <memory>
#include <string>

#include "triton/errors.h"
#include "triton/instance_models.h"

namespace embershard {
namespace {

Status CheckVersion() {
  uint32_t major = 0;
  uint32_t minor = 0;
  Status status = FromTriton(TRITONBACKEND_ApiVersion(&major, &minor));
  if (!status.ok() || (major == kTritonApiMajor && minor >= kTritonApiMinor)) return status;
  return InvalidArgument("Triton's backend API: expected version " +
                         std::to_string(kTritonApiMajor) + "." + std::to_string(kTritonApiMinor) +
                         " or a later minor one, got " + std::to_string(major) + "." +
                         std::to_string(minor));
}

}  // namespace
}  // namespace embershard

using embershard::Answered;
using embershard::FromTriton;
using embershard::OpenModels;
using embershard::Status;

TRITONSERVER_Error* TRITONBACKEND_Initialize(TRITONBACKEND_Backend* backend) {
  return Answered([backend] {
    if (Status status = embershard::CheckVersion(); !status.ok()) return status;
    auto open = std::make_unique<OpenModels>(embershard::OpenPackageModels());
    Status status = FromTriton(TRITONBACKEND_BackendSetState(backend, open.get()));
    if (status.ok()) open.release();
    return status;
  });
}

TRITONSERVER_Error* TRITONBACKEND_Finalize(TRITONBACKEND_Backend* backend) {
  return Answered([backend] {
    void* state = nullptr;
    const Status status = FromTriton(TRITONBACKEND_BackendState(backend, &state));
    const std::unique_ptr<OpenModels> ended(static_cast<OpenModels*>(state));
    return status;
  });
}

// Where config.pbtxt states no instances, there is one, on processors.
TRITONSERVER_Error* TRITONBACKEND_GetBackendAttribute(TRITONBACKEND_Backend*,
                                                      TRITONBACKEND_BackendAttribute* attributes) {
  return TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
      attributes, TRITONSERVER_INSTANCEGROUPKIND_CPU, /*count=*/1, /*device_ids=*/nullptr,
      /*id_count=*/0);
}
