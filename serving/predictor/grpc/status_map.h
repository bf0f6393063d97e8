// From Status to gRPC's: the one map of this transport.

#pragma once

#include <grpcpp/support/status.h>

#include "base/status.h"

namespace embershard::rpc {

// The metadata key by which a client learns after how many milliseconds to retry.
inline constexpr char kRetryPushbackKey[] = "grpc-retry-pushback-ms";

// A message that clients' limits on headers might not let through is cut.
grpc::Status ToGrpcStatus(const Status& status);

}  // namespace embershard::rpc
