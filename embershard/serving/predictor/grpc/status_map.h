#pragma once

#include <grpcpp/support/status.h>

#include "base/status.h"
#include "base/text.h"

namespace embershard::rpc {

// Metadata key with the number of milliseconds after which a client should retry.
inline constexpr char kRetryPushbackKey[] = "grpc-retry-pushback-ms";

// Truncates messages that would exceed clients' limits on headers.
inline grpc::Status ToGrpcStatus(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  // A client cannot repair a package.
  const bool is_package = status.code() == StatusCode::kBadPackage;
  const StatusCode code = is_package ? StatusCode::kInternal : status.code();
  return grpc::Status(static_cast<grpc::StatusCode>(code), CutMessage(status.message()));
}

}  // namespace embershard::rpc
