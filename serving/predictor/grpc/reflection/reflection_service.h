// gRPC server reflection: describes the services of this server to clients such as grpcurl.

#ifndef EMBERSHARD_GRPC_REFLECTION_REFLECTION_SERVICE_H_
#define EMBERSHARD_GRPC_REFLECTION_REFLECTION_SERVICE_H_

#include <grpcpp/impl/service_type.h>

#include <cstddef>

namespace embershard::rpc {

// Longest request that is read. A longer one ends its stream with INVALID_ARGUMENT.
inline constexpr size_t kReflectionRequestBytesMax = 4096;

// One version of the reflection protocol. The messages of v1 and v1alpha are the same bytes; only
// the paths differ.
class ReflectionService final : public grpc::Service {
 public:
  static constexpr char kV1[] = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
  static constexpr char kV1Alpha[] =
      "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";

  // `path`: of the only method, one of the two above.
  explicit ReflectionService(const char* path);
};

}  // namespace embershard::rpc

#endif  // EMBERSHARD_GRPC_REFLECTION_REFLECTION_SERVICE_H_
