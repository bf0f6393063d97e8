#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/byte_buffer.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "bench/load_options.h"

namespace embershard::bench {

inline std::chrono::system_clock::time_point SystemTime(Clock::time_point time) {
  using System = std::chrono::system_clock;
  return System::now() + std::chrono::duration_cast<System::duration>(time - Clock::now());
}

// Adds the token to a call, unless it is empty. gRPC's call credentials are not used, because they
// refuse connections without TLS.
inline void Authorize(const std::string& token, grpc::ClientContext* context) {
  if (!token.empty()) context->AddMetadata("authorization", "Bearer " + token);
}

// A request serialized before the run. Copies share its bytes.
struct PooledRequest {
  grpc::ByteBuffer message;
  uint32_t examples = 0;
};

// Requests in the order in which they are sent. The first follows the last.
using RequestPool = std::vector<PooledRequest>;

// The result of one request.
struct Reply {
  size_t slot = 0;
  int code = 0;              // gRPC status code; 0 is OK.
  std::string message = {};  // The error message.
  grpc::ByteBuffer answer = {};
};

// Each slot holds one request. Send() is thread-safe; one thread calls Next().
class GrpcTransport {
 public:
  virtual ~GrpcTransport() = default;

  // REQUIRES: the slot is free.
  virtual void Send(size_t slot, const grpc::ByteBuffer& message, Clock::time_point deadline) = 0;

  // Waits for the next reply and frees its slot. Every request gets a reply soon after its deadline
  // at the latest. Returns nothing after Close(), once no more replies can come.
  virtual std::optional<Reply> Next() = 0;

  virtual void Cancel() = 0;

  // REQUIRES: all slots are free, and Send() is not called again.
  virtual void Close() = 0;
};

// At least one connection. Calls and streams use them in turn.
using Channels = std::vector<std::shared_ptr<grpc::Channel>>;

// Sends each request as a unary call. A transport, of either kind, may be destroyed only after
// Next() returned nothing, or if nothing was sent.
std::unique_ptr<GrpcTransport> MakeCallTransport(const LoadOptions& options,
                                                 const Channels& channels, size_t slots);

// Sends many requests on each stream, which are answered in any order.
// REQUIRES: 0 < streams <= slots.
std::unique_ptr<GrpcTransport> MakeStreamTransport(const LoadOptions& options,
                                                   const Channels& channels, size_t streams,
                                                   size_t slots);

}  // namespace embershard::bench
