// The service of proto/inference/open_inference.proto over the same models and the same life of a
// request as our own.

#ifndef EMBERSHARD_GRPC_OIP_SERVICE_H_
#define EMBERSHARD_GRPC_OIP_SERVICE_H_

#include "base/clock.h"
#include "engine/served_models.h"
#include "grpc/oip_messages.h"
#include "grpc/open_calls.h"
#include "grpc/predict_handler.h"
#include "grpc/predict_streams.h"
#include "grpc/server.h"
#include "inference/open_inference.grpc.pb.h"

namespace embershard {

namespace oip {

using Rpcs = inference::GRPCInferenceService;

// All methods by callbacks; requests come as bytes, so that one which is no ModelInferRequest is
// refused as others are, and fails alone on a stream.
using Questions = Rpcs::WithCallbackMethod_ServerLive<
    Rpcs::WithCallbackMethod_ServerReady<Rpcs::WithCallbackMethod_ModelReady<
        Rpcs::WithCallbackMethod_ServerMetadata<Rpcs::WithCallbackMethod_ModelMetadata<
            Rpcs::WithCallbackMethod_ModelConfig<Rpcs::WithCallbackMethod_ModelStatistics<
                Rpcs::WithCallbackMethod_RepositoryIndex<Rpcs::Service>>>>>>>>;
using Orders = Rpcs::WithCallbackMethod_RepositoryModelLoad<
    Rpcs::WithCallbackMethod_RepositoryModelUnload<Questions>>;
using SharedMemory = Rpcs::WithCallbackMethod_SystemSharedMemoryStatus<
    Rpcs::WithCallbackMethod_SystemSharedMemoryRegister<
        Rpcs::WithCallbackMethod_SystemSharedMemoryUnregister<
            Rpcs::WithCallbackMethod_CudaSharedMemoryStatus<
                Rpcs::WithCallbackMethod_CudaSharedMemoryRegister<
                    Rpcs::WithCallbackMethod_CudaSharedMemoryUnregister<Orders>>>>>>;
using Settings =
    Rpcs::WithCallbackMethod_TraceSetting<Rpcs::WithCallbackMethod_LogSettings<SharedMemory>>;
using Base =
    Rpcs::WithRawCallbackMethod_ModelInfer<Rpcs::WithRawCallbackMethod_ModelStreamInfer<Settings>>;

}  // namespace oip

// As PredictorService: handlers never wait for the model.
class OipService final : public oip::Base {
 public:
  // Does not own `served`, which must outlive it.
  OipService(ServedModels* served, const GrpcServerOptions& options);

  // As PredictorService's. From the first on it says that it is not ready.
  void RefuseNew();
  void WaitUntilDone(Clock::time_point deadline);

  using Context = grpc::CallbackServerContext;
  using Reactor = grpc::ServerUnaryReactor;
  using StreamReactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;
  using Nothing = inference::Unserved;

  Reactor* ServerLive(Context* context, const inference::ServerLiveRequest*,
                      inference::ServerLiveResponse* response) override;
  Reactor* ServerReady(Context* context, const inference::ServerReadyRequest*,
                       inference::ServerReadyResponse* response) override;
  Reactor* ModelReady(Context* context, const inference::ModelReadyRequest* request,
                      inference::ModelReadyResponse* response) override;
  Reactor* ServerMetadata(Context* context, const inference::ServerMetadataRequest*,
                          inference::ServerMetadataResponse* response) override;
  Reactor* ModelMetadata(Context* context, const inference::ModelMetadataRequest* request,
                         inference::ModelMetadataResponse* response) override;
  Reactor* ModelInfer(Context* context, const grpc::ByteBuffer* message,
                      grpc::ByteBuffer* answer) override;
  StreamReactor* ModelStreamInfer(Context* context) override;
  Reactor* ModelConfig(Context* context, const inference::ModelConfigRequest* request,
                       inference::ModelConfigResponse* response) override;
  Reactor* ModelStatistics(Context* context, const inference::ModelStatisticsRequest* request,
                           inference::ModelStatisticsResponse* response) override;
  Reactor* RepositoryIndex(Context* context, const inference::RepositoryIndexRequest* request,
                           inference::RepositoryIndexResponse* response) override;
  Reactor* RepositoryModelLoad(Context* context, const inference::RepositoryModelLoadRequest*,
                               inference::RepositoryModelLoadResponse*) override;
  Reactor* RepositoryModelUnload(Context* context, const inference::RepositoryModelUnloadRequest*,
                                 inference::RepositoryModelUnloadResponse*) override;

  Reactor* SystemSharedMemoryStatus(Context* context, const Nothing*, Nothing*) override;
  Reactor* SystemSharedMemoryRegister(Context* context, const Nothing*, Nothing*) override;
  Reactor* SystemSharedMemoryUnregister(Context* context, const Nothing*, Nothing*) override;
  Reactor* CudaSharedMemoryStatus(Context* context, const Nothing*, Nothing*) override;
  Reactor* CudaSharedMemoryRegister(Context* context, const Nothing*, Nothing*) override;
  Reactor* CudaSharedMemoryUnregister(Context* context, const Nothing*, Nothing*) override;
  Reactor* TraceSetting(Context* context, const Nothing*, Nothing*) override;
  Reactor* LogSettings(Context* context, const Nothing*, Nothing*) override;

 private:
  ServedModels* const served_;
  const GrpcServerOptions options_;
  const PredictHandler handler_;
  OpenCalls calls_;
  PredictStreams streams_;
};

}  // namespace embershard

#endif  // EMBERSHARD_GRPC_OIP_SERVICE_H_
