#include "grpc/status_map.h"

#include <string>

#include "base/text.h"

namespace embershard {
namespace {

// Headers may hold 8 KiB by default, where a byte of a message takes up to three.
constexpr size_t kMessageBytesMax = 2000;

std::string Cut(const std::string& message) {
  if (message.size() <= kMessageBytesMax) return message;
  return std::string(CutUtf8(message, kMessageBytesMax)) + "...";
}

grpc::StatusCode CodeOf(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return grpc::StatusCode::OK;
    case StatusCode::kInvalidArgument:
      return grpc::StatusCode::INVALID_ARGUMENT;
    case StatusCode::kNotFound:
      return grpc::StatusCode::NOT_FOUND;
    case StatusCode::kFailedPrecondition:
      return grpc::StatusCode::FAILED_PRECONDITION;
    case StatusCode::kResourceExhausted:
      return grpc::StatusCode::RESOURCE_EXHAUSTED;
    case StatusCode::kDeadlineExceeded:
      return grpc::StatusCode::DEADLINE_EXCEEDED;
    case StatusCode::kUnavailable:
      return grpc::StatusCode::UNAVAILABLE;
    case StatusCode::kBadPackage:  // Nothing that a client can mend.
    case StatusCode::kInternal:
      break;
  }
  return grpc::StatusCode::INTERNAL;
}

}  // namespace

grpc::Status ToGrpcStatus(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(CodeOf(status.code()), Cut(status.message()));
}

}  // namespace embershard
