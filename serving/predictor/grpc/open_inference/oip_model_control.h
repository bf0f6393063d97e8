// The Open Inference Protocol's calls about the repository: what is there, load, unload.

#ifndef EMBERSHARD_GRPC_OPEN_INFERENCE_OIP_MODEL_CONTROL_H_
#define EMBERSHARD_GRPC_OPEN_INFERENCE_OIP_MODEL_CONTROL_H_

#include <grpcpp/support/server_callback.h>

#include "base/status.h"
#include "engine/model_control.h"
#include "engine/served_models.h"
#include "grpc/predict/open_calls.h"
#include "inference/open_inference.pb.h"

namespace embershard::rpc {

class OipModelControl {
 public:
  // Owns neither, which must outlive it. `control`: null where what is served does not change.
  // `taken`: whether orders are taken from clients at all.
  OipModelControl(const ServedModels* served, ModelControl* control, bool taken)
      : served_(served), control_(control), taken_(taken && control != nullptr) {}

  // As ModelControlCall::Start(). UNIMPLEMENTED where orders are not taken.
  grpc::ServerUnaryReactor* Load(grpc::CallbackServerContext* context,
                                 const inference::RepositoryModelLoadRequest& request,
                                 OpenCalls* calls) const;
  grpc::ServerUnaryReactor* Unload(grpc::CallbackServerContext* context,
                                   const inference::RepositoryModelUnloadRequest& request,
                                   OpenCalls* calls) const;

  // Every version that is in the repository, and what has become of it; without a control those
  // that are served. Looks at the repository's folders.
  Status Index(const inference::RepositoryIndexRequest& request,
               inference::RepositoryIndexResponse* response) const;

 private:
  const ServedModels* const served_;
  ModelControl* const control_;
  const bool taken_;
};

}  // namespace embershard::rpc

#endif  // EMBERSHARD_GRPC_OPEN_INFERENCE_OIP_MODEL_CONTROL_H_
