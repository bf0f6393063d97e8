// gRPC server reflection, for clients such as grpcurl.

#pragma once

#include <cstddef>
#include <string>

#include "grpc/predict/raw_service.h"

namespace embershard::rpc {

// Longest request that is read. A longer one ends its stream with INVALID_ARGUMENT.
inline constexpr size_t kReflectionRequestBytesMax = 4096;

// One version of the reflection protocol. The messages of v1 and v1alpha are the same bytes; only
// the names differ.
class ReflectionService final : public RawService {
 public:
  // `version`: "v1" or "v1alpha".
  explicit ReflectionService(const std::string& version);
};

}  // namespace embershard::rpc
