// From Status to gRPC's: the one map of this transport.

#pragma once

#include <grpcpp/support/status.h>

#include "base/status.h"
#include "base/text.h"

namespace embershard::rpc {

// The metadata key by which a client learns after how many milliseconds to retry.
inline constexpr char kRetryPushbackKey[] = "grpc-retry-pushback-ms";

// A message that clients' limits on headers might not let through is cut.
inline grpc::Status ToGrpcStatus(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  // What is wrong with a package is nothing that a client can fix.
  const bool is_package = status.code() == StatusCode::kBadPackage;
  const StatusCode code = is_package ? StatusCode::kInternal : status.code();
  return grpc::Status(static_cast<grpc::StatusCode>(code), CutMessage(status.message()));
}

}  // namespace embershard::rpc
