#include "grpc/oip_service.h"

#include <chrono>
#include <exception>
#include <memory>
#include <string>

#include "grpc/oip_descriptions.h"
#include "grpc/predict_call.h"
#include "grpc/status_map.h"

namespace embershard {
namespace {

constexpr char kNoSharedMemory[] =
    "shared memory is not served here: send tensors with the request";
constexpr char kNoOrders[] = "this server was told at its start what to serve";
constexpr char kNoSettings[] = "trace and log settings are flags of the server, not calls";

std::unique_ptr<WireMessages> MakeOipMessages() {
  return std::make_unique<OipMessages>(/*on_stream=*/true);
}

// Ends a call with what `answer` returns, a Status.
template <class Answer>
grpc::ServerUnaryReactor* Now(grpc::CallbackServerContext* context, Answer answer) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  Status status;
  try {
    status = answer();
  } catch (const std::exception& error) {  // Only memory can run out.
    status = Internal(std::string("the call failed: ") + error.what());
  }
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

grpc::ServerUnaryReactor* Unserved(grpc::CallbackServerContext* context, const char* why) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status(grpc::StatusCode::UNIMPLEMENTED, why));
  return reactor;
}

}  // namespace

OipService::OipService(ServedModels* served, const GrpcServerOptions& options)
    : served_(served),
      options_(options),
      handler_(served, nullptr, options.default_timeout),
      streams_(&handler_, MakeOipMessages, StreamOptionsOf(options)) {}

void OipService::RefuseNew() {
  calls_.RefuseNew();
  streams_.Close();
}

void OipService::WaitUntilDone(Clock::time_point deadline) {
  streams_.WaitUntilEnded(deadline);
  calls_.WaitUntilIdle(deadline);
}

OipService::Reactor* OipService::ServerLive(Context* context, const inference::ServerLiveRequest*,
                                            inference::ServerLiveResponse* response) {
  return Now(context, [response] {
    response->set_live(true);
    return Status();
  });
}

OipService::Reactor* OipService::ServerReady(Context* context, const inference::ServerReadyRequest*,
                                             inference::ServerReadyResponse* response) {
  return Now(context, [this, response] {
    response->set_ready(!calls_.refuses() && !served_->List().empty());
    return Status();
  });
}

OipService::Reactor* OipService::ModelReady(Context* context,
                                            const inference::ModelReadyRequest* request,
                                            inference::ModelReadyResponse* response) {
  return Now(context, [this, request, response] {
    const bool found = FindOip(*served_, request->name(), request->version()).ok();
    response->set_ready(found && !calls_.refuses());
    return Status();
  });
}

OipService::Reactor* OipService::ServerMetadata(Context* context,
                                                const inference::ServerMetadataRequest*,
                                                inference::ServerMetadataResponse* response) {
  return Now(context, [response] {
    DescribeServer(response);
    return Status();
  });
}

OipService::Reactor* OipService::ModelMetadata(Context* context,
                                               const inference::ModelMetadataRequest* request,
                                               inference::ModelMetadataResponse* response) {
  return Now(context, [this, request, response] {
    const auto engine = FindOip(*served_, request->name(), request->version());
    if (engine.ok()) DescribeModel(**engine, *served_, response);
    return engine.status();
  });
}

OipService::Reactor* OipService::ModelInfer(Context* context, const grpc::ByteBuffer* message,
                                            grpc::ByteBuffer* answer) {
  return PredictCall::Start(&handler_, &calls_, options_.retry_pushback, context,
                            std::make_shared<OipMessages>(/*on_stream=*/false), message, answer);
}

OipService::StreamReactor* OipService::ModelStreamInfer(Context* context) {
  return streams_.Open(context);
}

OipService::Reactor* OipService::ModelConfig(Context* context,
                                             const inference::ModelConfigRequest* request,
                                             inference::ModelConfigResponse* response) {
  return Now(context, [this, request, response] {
    const auto engine = FindOip(*served_, request->name(), request->version());
    const std::chrono::microseconds timeout = options_.default_timeout;
    if (engine.ok()) {
      DescribeConfig(**engine, static_cast<uint64_t>(timeout.count()), response->mutable_config());
    }
    return engine.status();
  });
}

OipService::Reactor* OipService::ModelStatistics(Context* context,
                                                 const inference::ModelStatisticsRequest* request,
                                                 inference::ModelStatisticsResponse* response) {
  return Now(context, [this, request, response]() -> Status {
    if (request->name().empty()) {
      for (const auto& engine : served_->Engines()) {
        DescribeStatistics(*engine, response->add_model_stats());
      }
      return {};
    }
    const auto engine = FindOip(*served_, request->name(), request->version());
    if (engine.ok()) DescribeStatistics(**engine, response->add_model_stats());
    return engine.status();
  });
}

OipService::Reactor* OipService::RepositoryIndex(Context* context,
                                                 const inference::RepositoryIndexRequest* request,
                                                 inference::RepositoryIndexResponse* response) {
  return Now(context, [this, request, response] {
    DescribeRepository(*served_, request->ready(), response);
    return Status();
  });
}

OipService::Reactor* OipService::RepositoryModelLoad(Context* context,
                                                     const inference::RepositoryModelLoadRequest*,
                                                     inference::RepositoryModelLoadResponse*) {
  return Unserved(context, kNoOrders);
}

OipService::Reactor* OipService::RepositoryModelUnload(
    Context* context, const inference::RepositoryModelUnloadRequest*,
    inference::RepositoryModelUnloadResponse*) {
  return Unserved(context, kNoOrders);
}

OipService::Reactor* OipService::SystemSharedMemoryStatus(Context* context, const Nothing*,
                                                          Nothing*) {
  return Unserved(context, kNoSharedMemory);
}

OipService::Reactor* OipService::SystemSharedMemoryRegister(Context* context, const Nothing*,
                                                            Nothing*) {
  return Unserved(context, kNoSharedMemory);
}

OipService::Reactor* OipService::SystemSharedMemoryUnregister(Context* context, const Nothing*,
                                                              Nothing*) {
  return Unserved(context, kNoSharedMemory);
}

OipService::Reactor* OipService::CudaSharedMemoryStatus(Context* context, const Nothing*,
                                                        Nothing*) {
  return Unserved(context, kNoSharedMemory);
}

OipService::Reactor* OipService::CudaSharedMemoryRegister(Context* context, const Nothing*,
                                                          Nothing*) {
  return Unserved(context, kNoSharedMemory);
}

OipService::Reactor* OipService::CudaSharedMemoryUnregister(Context* context, const Nothing*,
                                                            Nothing*) {
  return Unserved(context, kNoSharedMemory);
}

OipService::Reactor* OipService::TraceSetting(Context* context, const Nothing*, Nothing*) {
  return Unserved(context, kNoSettings);
}

OipService::Reactor* OipService::LogSettings(Context* context, const Nothing*, Nothing*) {
  return Unserved(context, kNoSettings);
}

}  // namespace embershard
