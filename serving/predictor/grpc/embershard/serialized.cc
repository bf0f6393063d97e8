#include "grpc/embershard/serialized.h"

#include <limits>

#include "embershard/v1/predictor.pb.h"
#include "grpc/embershard/responses.h"

namespace embershard::rpc {

std::string GetModelSerialized(const Engine& engine) {
  v1::GetModelResponse message;
  // Nothing is sent, so protobuf's own limit is the only one.
  DescribeModel(engine, std::numeric_limits<int32_t>::max(), &message);
  return message.SerializeAsString();
}

}  // namespace embershard::rpc
