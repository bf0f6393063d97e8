// The few fields of PredictRequest and PredictResponse (proto/embershard/v1/predictor.proto) that
// matter on a stream, written and read without the rest.

#ifndef EMBERSHARD_BENCH_GRPC_STREAM_WIRE_H_
#define EMBERSHARD_BENCH_GRPC_STREAM_WIRE_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <string>

namespace embershard {

// The request with these fields behind its own, which they take the place of. Shares its bytes.
grpc::ByteBuffer WithIdAndTimeout(const grpc::ByteBuffer& request, const std::string& id,
                                  uint32_t timeout_ms);

struct StreamAnswer {
  std::string id;
  int code = 0;         // Of its failure. 0: none.
  std::string message;  // Likewise.
};

// False: `bytes` are no PredictResponse.
bool ReadStreamAnswer(const grpc::ByteBuffer& bytes, StreamAnswer* answer);

}  // namespace embershard

#endif  // EMBERSHARD_BENCH_GRPC_STREAM_WIRE_H_
