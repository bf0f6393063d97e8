#ifndef EMBERSHARD_BENCH_REQUEST_POOL_H_
#define EMBERSHARD_BENCH_REQUEST_POOL_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <vector>

namespace embershard {

// A request as it goes over the wire, made before the run. Copies share its bytes.
struct PooledRequest {
  grpc::ByteBuffer message;
  uint32_t examples = 0;
};

// Sent in turn, from the first again after the last.
using RequestPool = std::vector<PooledRequest>;

}  // namespace embershard

#endif  // EMBERSHARD_BENCH_REQUEST_POOL_H_
