// Functions that Triton calls to load and unload the backend. The only file of this component that
// chooses how packages are loaded, and so the only one that needs torch.

#include <cstdint>
#include <memory>

#include "base/core_count.h"
#include "package/tables.h"
#include "triton/errors.h"
#include "triton/triton_model.h"

namespace embershard::triton {
namespace {

Status CheckVersion() {
  uint32_t major = 0;
  uint32_t minor = 0;
  Status status = FromTriton(TRITONBACKEND_ApiVersion(&major, &minor));
  if (!status.ok() || (major == kTritonApiMajor && minor >= kTritonApiMinor)) return status;
  return InvalidArgument("Triton's backend API: expected version ", kTritonApiMajor, ".",
                         kTritonApiMinor, " or a later minor one, got ", major, ".", minor);
}

// Versions that are loaded at the same time share equal tables.
OpenModels OpenPackageModels() {
  return [loaded = std::make_shared<LoadedChunks>()](const std::filesystem::path& folder,
                                                     ModelOptions options) {
    options.package.loaded = loaded.get();
    return LoadPackageModel(folder, options);
  };
}

}  // namespace
}  // namespace embershard::triton

using embershard::Status;
using embershard::triton::Answered;
using embershard::triton::FromTriton;
using embershard::triton::OpenModels;

TRITONSERVER_Error* TRITONBACKEND_Initialize(TRITONBACKEND_Backend* backend) {
  return Answered([backend] {
    RETURN_IF_ERROR(embershard::triton::CheckVersion());
    auto open = std::make_unique<OpenModels>(embershard::triton::OpenPackageModels());
    Status status = FromTriton(TRITONBACKEND_BackendSetState(backend, open.get()));
    if (status.ok()) open.release();
    return status;
  });
}

TRITONSERVER_Error* TRITONBACKEND_Finalize(TRITONBACKEND_Backend* backend) {
  return embershard::triton::Finalize<OpenModels>(&TRITONBACKEND_BackendState, backend);
}

// Makes Triton start one instance per core if config.pbtxt sets no number.
TRITONSERVER_Error* TRITONBACKEND_GetBackendAttribute(TRITONBACKEND_Backend*,
                                                      TRITONBACKEND_BackendAttribute* attributes) {
  return TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
      attributes, TRITONSERVER_INSTANCEGROUPKIND_CPU,
      static_cast<uint64_t>(embershard::CoreCount()), /*device_ids=*/nullptr, /*id_count=*/0);
}
