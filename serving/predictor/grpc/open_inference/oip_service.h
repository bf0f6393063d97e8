// The service of proto/inference/open_inference.proto over the same models and the same life of a
// request as our own.

#ifndef EMBERSHARD_GRPC_OPEN_INFERENCE_OIP_SERVICE_H_
#define EMBERSHARD_GRPC_OPEN_INFERENCE_OIP_SERVICE_H_

#include "base/clock.h"
#include "engine/model_control.h"
#include "engine/served_models.h"
#include "grpc/open_inference/oip_messages.h"
#include "grpc/open_inference/oip_model_control.h"
#include "grpc/predict/open_calls.h"
#include "grpc/predict/predict_handler.h"
#include "grpc/predict/predict_streams.h"
#include "grpc/server.h"
#include "inference/open_inference.grpc.pb.h"

namespace embershard::rpc {

namespace oip {

using Rpcs = inference::GRPCInferenceService;

// All methods by callbacks, and all messages come as bytes: what is none is refused in words, and
// what would take far more memory than bytes is not parsed.
using Questions = Rpcs::WithRawCallbackMethod_ServerLive<
    Rpcs::WithRawCallbackMethod_ServerReady<Rpcs::WithRawCallbackMethod_ModelReady<
        Rpcs::WithRawCallbackMethod_ServerMetadata<Rpcs::WithRawCallbackMethod_ModelMetadata<
            Rpcs::WithRawCallbackMethod_ModelConfig<Rpcs::WithRawCallbackMethod_ModelStatistics<
                Rpcs::WithRawCallbackMethod_RepositoryIndex<Rpcs::Service>>>>>>>>;
using Orders = Rpcs::WithRawCallbackMethod_RepositoryModelLoad<
    Rpcs::WithRawCallbackMethod_RepositoryModelUnload<Questions>>;
using SharedMemory = Rpcs::WithRawCallbackMethod_SystemSharedMemoryStatus<
    Rpcs::WithRawCallbackMethod_SystemSharedMemoryRegister<
        Rpcs::WithRawCallbackMethod_SystemSharedMemoryUnregister<
            Rpcs::WithRawCallbackMethod_CudaSharedMemoryStatus<
                Rpcs::WithRawCallbackMethod_CudaSharedMemoryRegister<
                    Rpcs::WithRawCallbackMethod_CudaSharedMemoryUnregister<Orders>>>>>>;
using Settings =
    Rpcs::WithRawCallbackMethod_TraceSetting<Rpcs::WithRawCallbackMethod_LogSettings<SharedMemory>>;
using Base =
    Rpcs::WithRawCallbackMethod_ModelInfer<Rpcs::WithRawCallbackMethod_ModelStreamInfer<Settings>>;

}  // namespace oip

// As PredictorService: handlers never wait for the model.
class OipService final : public oip::Base {
 public:
  // Owns neither, which must outlive it. `control`: as OipModelControl takes it.
  OipService(ServedModels* served, ModelControl* control, const ServerOptions& options,
             OpenConnections* connections);

  // As PredictorService's. From the first on it says that it is not ready.
  void RefuseNew();
  void WaitUntilDone(Clock::time_point deadline);

  using Bytes = grpc::ByteBuffer;
  using Context = grpc::CallbackServerContext;
  using Reactor = grpc::ServerUnaryReactor;
  using StreamReactor = grpc::ServerBidiReactor<Bytes, Bytes>;

  Reactor* ServerLive(Context* context, const Bytes* message, Bytes* answer) override;
  Reactor* ServerReady(Context* context, const Bytes* message, Bytes* answer) override;
  Reactor* ModelReady(Context* context, const Bytes* message, Bytes* answer) override;
  Reactor* ServerMetadata(Context* context, const Bytes* message, Bytes* answer) override;
  Reactor* ModelMetadata(Context* context, const Bytes* message, Bytes* answer) override;
  Reactor* ModelInfer(Context* context, const Bytes* message, Bytes* answer) override;
  StreamReactor* ModelStreamInfer(Context* context) override;
  Reactor* ModelConfig(Context* context, const Bytes* message, Bytes* answer) override;
  Reactor* ModelStatistics(Context* context, const Bytes* message, Bytes* answer) override;
  Reactor* RepositoryIndex(Context* context, const Bytes* message, Bytes* answer) override;
  Reactor* RepositoryModelLoad(Context* context, const Bytes* message, Bytes* answer) override;
  Reactor* RepositoryModelUnload(Context* context, const Bytes* message, Bytes* answer) override;

  Reactor* SystemSharedMemoryStatus(Context* context, const Bytes*, Bytes*) override;
  Reactor* SystemSharedMemoryRegister(Context* context, const Bytes*, Bytes*) override;
  Reactor* SystemSharedMemoryUnregister(Context* context, const Bytes*, Bytes*) override;
  Reactor* CudaSharedMemoryStatus(Context* context, const Bytes*, Bytes*) override;
  Reactor* CudaSharedMemoryRegister(Context* context, const Bytes*, Bytes*) override;
  Reactor* CudaSharedMemoryUnregister(Context* context, const Bytes*, Bytes*) override;
  Reactor* TraceSetting(Context* context, const Bytes*, Bytes*) override;
  Reactor* LogSettings(Context* context, const Bytes*, Bytes*) override;

 private:
  ServedModels* const served_;
  const ServerOptions options_;
  const PredictHandler handler_;
  const OipModelControl orders_;
  OpenCalls calls_;
  PredictStreams streams_;
};

}  // namespace embershard::rpc

#endif  // EMBERSHARD_GRPC_OPEN_INFERENCE_OIP_SERVICE_H_
