#include "grpc/open_inference/oip_service.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "grpc/open_inference/model_control_call.h"
#include "grpc/open_inference/oip_messages.h"

namespace embershard::rpc {
namespace {

constexpr char kNoSharedMemory[] =
    "shared memory is not served here: send tensors with the request";
constexpr char kNoSettings[] = "trace and log settings are flags of the server, not calls";
constexpr char kNotTaken[] =
    "this server takes no load or unload requests from clients: embershard serve --model-control "
    "has it take them";
constexpr std::pair<const char*, const char*> kUnserved[] = {
    {"SystemSharedMemoryStatus", kNoSharedMemory},
    {"SystemSharedMemoryRegister", kNoSharedMemory},
    {"SystemSharedMemoryUnregister", kNoSharedMemory},
    {"CudaSharedMemoryStatus", kNoSharedMemory},
    {"CudaSharedMemoryRegister", kNoSharedMemory},
    {"CudaSharedMemoryUnregister", kNoSharedMemory},
    {"TraceSetting", kNoSettings},
    {"LogSettings", kNoSettings}};

// The one parameter of an unload. It has no effect, since models do not depend on each other.
constexpr char kDependents[] = "unload_dependents";

template <bool kOnStream>
std::shared_ptr<WireMessages> MakeOipMessages() {
  return std::make_shared<OipMessages>(kOnStream);
}

Status CheckRepository(const std::string& name) {
  if (name.empty()) return {};
  return InvalidArgument("repository_name: expected none, since a server has one repository, got '",
                         name, "'");
}

// `known`: see OipService::AddOrder().
template <class Request>
Status Check(const Request& request, const std::string& known) {
  RETURN_IF_ERROR(CheckRepository(request.repository_name()));
  for (const auto& [key, value] : request.parameters()) {
    if (key == known) continue;
    if (!known.empty())
      return InvalidArgument("parameter '", key, "': expected only '", known, "'");
    return InvalidArgument("parameter '", key,
                           "': expected none, since a model's package holds its configuration");
  }
  return {};
}

}  // namespace

OipService::OipService(ServedModels* served, ModelControl* control, const ServerOptions& options,
                       OpenConnections* connections)
    : PredictService("inference.GRPCInferenceService", served, nullptr, options, connections),
      control_(control) {
  AddPredict("ModelInfer", MakeOipMessages</*kOnStream=*/false>);
  AddPredictStream("ModelStreamInfer", MakeOipMessages</*kOnStream=*/true>);
  AddQuestions();
  AddModelControl();
  for (const auto& [method, why] : kUnserved) {
    AddUnary(method, [why = why](Context* context, const Bytes*, Bytes*) {
      return EndNow(context, grpc::Status(grpc::StatusCode::UNIMPLEMENTED, why));
    });
  }
}

void OipService::AddQuestions() {
  AddQuestion<inference::ServerLiveRequest, inference::ServerLiveResponse>(
      "ServerLive", [](const auto&, auto* response) {
        response->set_live(true);
        return Status();
      });
  AddQuestion<inference::ServerReadyRequest, inference::ServerReadyResponse>(
      "ServerReady", [this](const auto&, auto* response) {
        response->set_ready(!calls_.refuses() && !served_->List().empty());
        return Status();
      });
  AddQuestion<inference::ModelReadyRequest, inference::ModelReadyResponse>(
      "ModelReady", [this](const auto& request, auto* response) {
        const bool is_served = FindOip(*served_, request.name(), request.version()).ok();
        response->set_ready(is_served && !calls_.refuses());
        return Status();
      });
  AddQuestion<inference::ServerMetadataRequest, inference::ServerMetadataResponse>(
      "ServerMetadata", [](const auto&, auto* response) {
        DescribeServer(response);
        return Status();
      });
  AddQuestion<inference::ModelMetadataRequest, inference::ModelMetadataResponse>(
      "ModelMetadata", [this](const auto& request, auto* response) {
        const auto engine = FindOip(*served_, request.name(), request.version());
        if (engine.ok()) DescribeModel(**engine, *served_, response);
        return engine.status();
      });
  AddQuestion<inference::ModelConfigRequest, inference::ModelConfigResponse>(
      "ModelConfig", [this](const auto& request, auto* response) {
        const auto engine = FindOip(*served_, request.name(), request.version());
        const std::chrono::microseconds timeout = options_.default_timeout;
        if (engine.ok()) {
          DescribeConfig(**engine, static_cast<uint64_t>(timeout.count()),
                         response->mutable_config());
        }
        return engine.status();
      });
  AddQuestion<inference::ModelStatisticsRequest, inference::ModelStatisticsResponse>(
      "ModelStatistics", [this](const auto& request, auto* response) -> Status {
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

void OipService::AddModelControl() {
  AddQuestion<inference::RepositoryIndexRequest, inference::RepositoryIndexResponse>(
      "RepositoryIndex", [this](const auto& request, auto* response) -> Status {
        RETURN_IF_ERROR(CheckRepository(request.repository_name()));
        const Result<std::vector<ServedVersion>> index = Index();
        if (index.ok()) DescribeRepository(*index, request.ready(), response);
        return index.status();
      });
  AddOrder<inference::RepositoryModelLoadRequest, inference::RepositoryModelLoadResponse>(
      "RepositoryModelLoad", "", [this](const std::string& model, auto done, auto abandoned) {
        control_->Load(model, 0, Swap::kBeside, std::move(done), std::move(abandoned));
      });
  AddOrder<inference::RepositoryModelUnloadRequest, inference::RepositoryModelUnloadResponse>(
      "RepositoryModelUnload", kDependents,
      [this](const std::string& model, auto done, auto abandoned) {
        control_->Unload(model, 0, std::move(done), std::move(abandoned));
      });
}

template <class Request, class Response, class Give>
void OipService::AddOrder(const char* method, const char* known, Give give) {
  AddParsed<Request>(
      method,
      [this, known, give](Context* context, const Request& request, Bytes* bytes,
                          Status* status) -> UnaryReactor* {
        if (!options_.model_control || control_ == nullptr) {
          return EndNow(context, grpc::Status(grpc::StatusCode::UNIMPLEMENTED, kNotTaken));
        }
        *status = Check(request, known);
        if (!status->ok()) return nullptr;
        *bytes = WriteMessage(Response());
        return ModelControlCall::Start(
            context, &calls_, [&](ModelControl::Done done, ModelControl::Abandoned abandoned) {
              give(request.model_name(), std::move(done), std::move(abandoned));
            });
      });
}

Result<std::vector<ServedVersion>> OipService::Index() const {
  if (control_ == nullptr) return served_->List();
  return control_->Index();
}

}  // namespace embershard::rpc
