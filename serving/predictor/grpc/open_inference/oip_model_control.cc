#include "grpc/open_inference/oip_model_control.h"

#include <string>
#include <utility>
#include <vector>

#include "grpc/open_inference/model_control_call.h"
#include "grpc/open_inference/oip_descriptions.h"
#include "grpc/predict/answer_now.h"
#include "grpc/status_map.h"

namespace embershard::rpc {
namespace {

constexpr char kNotTaken[] =
    "this server takes no load or unload requests from clients: embershard serve --model-control "
    "has it take them";

// Of an unload: models here do not depend on each other.
constexpr char kDependents[] = "unload_dependents";

Status CheckRepository(const std::string& name) {
  if (name.empty()) return {};
  return InvalidArgument(
      "repository_name: expected none, since a server has one repository, got '" + name + "'");
}

Status Refuse(const std::string& key) {
  return InvalidArgument("parameter '" + key +
                         "': expected none, since the package says all of a model");
}

Status Check(const inference::RepositoryModelLoadRequest& request) {
  if (Status status = CheckRepository(request.repository_name()); !status.ok()) return status;
  for (const auto& [key, value] : request.parameters()) return Refuse(key);
  return {};
}

Status Check(const inference::RepositoryModelUnloadRequest& request) {
  if (Status status = CheckRepository(request.repository_name()); !status.ok()) return status;
  for (const auto& [key, value] : request.parameters()) {
    if (key != kDependents) return Refuse(key);
  }
  return {};
}

}  // namespace

grpc::ServerUnaryReactor* OipModelControl::Load(
    grpc::CallbackServerContext* context, const inference::RepositoryModelLoadRequest& request,
    OpenCalls* calls) const {
  if (!taken_) return EndNow(context, grpc::Status(grpc::StatusCode::UNIMPLEMENTED, kNotTaken));
  if (Status status = Check(request); !status.ok()) return EndNow(context, ToGrpcStatus(status));
  return ModelControlCall::Start(context, calls,
                                 [&](ModelControl::Done done, ModelControl::Abandoned abandoned) {
                                   control_->Load(request.model_name(), 0, Swap::kBeside,
                                                  std::move(done), std::move(abandoned));
                                 });
}

grpc::ServerUnaryReactor* OipModelControl::Unload(
    grpc::CallbackServerContext* context, const inference::RepositoryModelUnloadRequest& request,
    OpenCalls* calls) const {
  if (!taken_) return EndNow(context, grpc::Status(grpc::StatusCode::UNIMPLEMENTED, kNotTaken));
  if (Status status = Check(request); !status.ok()) return EndNow(context, ToGrpcStatus(status));
  return ModelControlCall::Start(
      context, calls, [&](ModelControl::Done done, ModelControl::Abandoned abandoned) {
        control_->Unload(request.model_name(), 0, std::move(done), std::move(abandoned));
      });
}

Status OipModelControl::Index(const inference::RepositoryIndexRequest& request,
                              inference::RepositoryIndexResponse* response) const {
  if (Status status = CheckRepository(request.repository_name()); !status.ok()) return status;
  if (control_ == nullptr) {
    DescribeRepository(served_->List(), request.ready(), response);
    return {};
  }
  const Result<std::vector<ServedVersion>> index = control_->Index();
  if (index.ok()) DescribeRepository(*index, request.ready(), response);
  return index.status();
}

}  // namespace embershard::rpc
