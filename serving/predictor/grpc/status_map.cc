#include "grpc/status_map.h"

#include "base/text.h"

namespace embershard::rpc {

grpc::Status ToGrpcStatus(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  // What is wrong with a package is nothing that a client can fix.
  const bool is_package = status.code() == StatusCode::kBadPackage;
  const StatusCode code = is_package ? StatusCode::kInternal : status.code();
  return grpc::Status(static_cast<grpc::StatusCode>(code), CutMessage(status.message()));
}

}  // namespace embershard::rpc
