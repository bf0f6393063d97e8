#include "grpc/open_inference/oip_service.h"

#include <chrono>
#include <exception>
#include <memory>
#include <string>

#include "grpc/open_inference/oip_descriptions.h"
#include "grpc/predict/answer_now.h"
#include "grpc/predict/message_parser.h"
#include "grpc/predict/predict_call.h"
#include "grpc/status_map.h"

namespace embershard::rpc {
namespace {

using Bytes = grpc::ByteBuffer;
using Context = grpc::CallbackServerContext;
using Reactor = grpc::ServerUnaryReactor;

constexpr char kNoSharedMemory[] =
    "shared memory is not served here: send tensors with the request";
constexpr char kNoSettings[] = "trace and log settings are flags of the server, not calls";

std::unique_ptr<WireMessages> MakeOipMessages() {
  return std::make_unique<OipMessages>(/*on_stream=*/true);
}

// Has `give` hand over the order that the message is.
template <class Request, class Response, class Give>
Reactor* Ordered(Context* context, const Bytes* message, Bytes* bytes, Give give) {
  try {
    Request request;
    const Status status = ParseMessage(const_cast<Bytes*>(message), &request);
    if (!status.ok()) return EndNow(context, ToGrpcStatus(status));
    *bytes = WriteMessage(Response());
    return give(request);
  } catch (const std::exception& error) {  // Memory has run out, say.
    return EndNow(context, ToGrpcStatus(Internal(std::string("the call failed: ") + error.what())));
  }
}

Reactor* Unserved(Context* context, const char* why) {
  return EndNow(context, grpc::Status(grpc::StatusCode::UNIMPLEMENTED, why));
}

}  // namespace

OipService::OipService(ServedModels* served, ModelControl* control, const ServerOptions& options,
                       OpenConnections* connections)
    : served_(served),
      options_(options),
      handler_(served, nullptr, options.default_timeout, connections),
      orders_(served, control, options.model_control),
      streams_(&handler_, MakeOipMessages, StreamOptionsOf(options)) {}

void OipService::RefuseNew() {
  calls_.RefuseNew();
  streams_.Close();
}

void OipService::WaitUntilDone(Clock::time_point deadline) {
  streams_.WaitUntilEnded(deadline);
  calls_.WaitUntilIdle(deadline);
}

Reactor* OipService::ServerLive(Context* context, const Bytes* message, Bytes* answer) {
  return AnswerNow<inference::ServerLiveRequest, inference::ServerLiveResponse>(
      context, message, answer, [](const auto&, auto* response) {
        response->set_live(true);
        return Status();
      });
}

Reactor* OipService::ServerReady(Context* context, const Bytes* message, Bytes* answer) {
  return AnswerNow<inference::ServerReadyRequest, inference::ServerReadyResponse>(
      context, message, answer, [this](const auto&, auto* response) {
        response->set_ready(!calls_.refuses() && !served_->List().empty());
        return Status();
      });
}

Reactor* OipService::ModelReady(Context* context, const Bytes* message, Bytes* answer) {
  return AnswerNow<inference::ModelReadyRequest, inference::ModelReadyResponse>(
      context, message, answer, [this](const auto& request, auto* response) {
        const bool found = FindOip(*served_, request.name(), request.version()).ok();
        response->set_ready(found && !calls_.refuses());
        return Status();
      });
}

Reactor* OipService::ServerMetadata(Context* context, const Bytes* message, Bytes* answer) {
  return AnswerNow<inference::ServerMetadataRequest, inference::ServerMetadataResponse>(
      context, message, answer, [](const auto&, auto* response) {
        DescribeServer(response);
        return Status();
      });
}

Reactor* OipService::ModelMetadata(Context* context, const Bytes* message, Bytes* answer) {
  return AnswerNow<inference::ModelMetadataRequest, inference::ModelMetadataResponse>(
      context, message, answer, [this](const auto& request, auto* response) {
        const auto engine = FindOip(*served_, request.name(), request.version());
        if (engine.ok()) DescribeModel(**engine, *served_, response);
        return engine.status();
      });
}

Reactor* OipService::ModelInfer(Context* context, const Bytes* message, Bytes* answer) {
  return PredictCall::Start(&handler_, &calls_, options_.retry_pushback, context,
                            std::make_shared<OipMessages>(/*on_stream=*/false), message, answer);
}

OipService::StreamReactor* OipService::ModelStreamInfer(Context* context) {
  return streams_.Open(context);
}

Reactor* OipService::ModelConfig(Context* context, const Bytes* message, Bytes* answer) {
  return AnswerNow<inference::ModelConfigRequest, inference::ModelConfigResponse>(
      context, message, answer, [this](const auto& request, auto* response) {
        const auto engine = FindOip(*served_, request.name(), request.version());
        const std::chrono::microseconds timeout = options_.default_timeout;
        if (engine.ok()) {
          DescribeConfig(**engine, static_cast<uint64_t>(timeout.count()),
                         response->mutable_config());
        }
        return engine.status();
      });
}

Reactor* OipService::ModelStatistics(Context* context, const Bytes* message, Bytes* answer) {
  return AnswerNow<inference::ModelStatisticsRequest, inference::ModelStatisticsResponse>(
      context, message, answer, [this](const auto& request, auto* response) -> Status {
        if (request.name().empty()) {
          for (const auto& engine : served_->Engines()) {
            DescribeStatistics(*engine, response->add_model_stats());
          }
          return {};
        }
        const auto engine = FindOip(*served_, request.name(), request.version());
        if (engine.ok()) DescribeStatistics(**engine, response->add_model_stats());
        return engine.status();
      });
}

Reactor* OipService::RepositoryIndex(Context* context, const Bytes* message, Bytes* answer) {
  return AnswerNow<inference::RepositoryIndexRequest, inference::RepositoryIndexResponse>(
      context, message, answer,
      [this](const auto& request, auto* response) { return orders_.Index(request, response); });
}

Reactor* OipService::RepositoryModelLoad(Context* context, const Bytes* message, Bytes* answer) {
  return Ordered<inference::RepositoryModelLoadRequest, inference::RepositoryModelLoadResponse>(
      context, message, answer,
      [&](const auto& request) { return orders_.Load(context, request, &calls_); });
}

Reactor* OipService::RepositoryModelUnload(Context* context, const Bytes* message, Bytes* answer) {
  return Ordered<inference::RepositoryModelUnloadRequest, inference::RepositoryModelUnloadResponse>(
      context, message, answer,
      [&](const auto& request) { return orders_.Unload(context, request, &calls_); });
}

Reactor* OipService::SystemSharedMemoryStatus(Context* context, const Bytes*, Bytes*) {
  return Unserved(context, kNoSharedMemory);
}

Reactor* OipService::SystemSharedMemoryRegister(Context* context, const Bytes*, Bytes*) {
  return Unserved(context, kNoSharedMemory);
}

Reactor* OipService::SystemSharedMemoryUnregister(Context* context, const Bytes*, Bytes*) {
  return Unserved(context, kNoSharedMemory);
}

Reactor* OipService::CudaSharedMemoryStatus(Context* context, const Bytes*, Bytes*) {
  return Unserved(context, kNoSharedMemory);
}

Reactor* OipService::CudaSharedMemoryRegister(Context* context, const Bytes*, Bytes*) {
  return Unserved(context, kNoSharedMemory);
}

Reactor* OipService::CudaSharedMemoryUnregister(Context* context, const Bytes*, Bytes*) {
  return Unserved(context, kNoSharedMemory);
}

Reactor* OipService::TraceSetting(Context* context, const Bytes*, Bytes*) {
  return Unserved(context, kNoSettings);
}

Reactor* OipService::LogSettings(Context* context, const Bytes*, Bytes*) {
  return Unserved(context, kNoSettings);
}

}  // namespace embershard::rpc
