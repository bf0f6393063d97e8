#include "grpc/status_map.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace embershard::rpc {
namespace {

TEST(StatusMap, TellsClientsWhatToDo) {
  const std::pair<StatusCode, grpc::StatusCode> codes[] = {
      {StatusCode::kInvalidArgument, grpc::StatusCode::INVALID_ARGUMENT},
      {StatusCode::kNotFound, grpc::StatusCode::NOT_FOUND},
      {StatusCode::kFailedPrecondition, grpc::StatusCode::FAILED_PRECONDITION},
      {StatusCode::kResourceExhausted, grpc::StatusCode::RESOURCE_EXHAUSTED},
      {StatusCode::kDeadlineExceeded, grpc::StatusCode::DEADLINE_EXCEEDED},
      {StatusCode::kUnavailable, grpc::StatusCode::UNAVAILABLE},
      {StatusCode::kBadPackage, grpc::StatusCode::INTERNAL},
      {StatusCode::kInternal, grpc::StatusCode::INTERNAL},
  };
  for (const auto& [ours, theirs] : codes) {
    const grpc::Status status = ToGrpcStatus({ours, "why"});
    EXPECT_EQ(status.error_code(), theirs);
    EXPECT_EQ(status.error_message(), "why");
  }
  EXPECT_TRUE(ToGrpcStatus({}).ok());
}

TEST(StatusMap, CutsLongMessagesBetweenCharacters) {
  EXPECT_EQ(ToGrpcStatus(Internal(std::string(2000, 'x'))).error_message().size(), 2000U);
  EXPECT_EQ(ToGrpcStatus(Internal(std::string(2001, 'x'))).error_message(),
            std::string(2000, 'x') + "...");
  EXPECT_EQ(ToGrpcStatus(Internal(std::string(1999, 'x') + "äbc")).error_message(),
            std::string(1999, 'x') + "...");
}

}  // namespace
}  // namespace embershard::rpc
