// How a lane's requests get to the server, and their answers back.

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

// As gRPC takes deadlines.
inline std::chrono::system_clock::time_point SystemTime(Clock::time_point time) {
  using System = std::chrono::system_clock;
  return System::now() + std::chrono::duration_cast<System::duration>(time - Clock::now());
}

// Gives a call the token, if there is one. gRPC's own credentials of calls refuse connections
// without TLS.
inline void Authorize(const std::string& token, grpc::ClientContext* context) {
  if (!token.empty()) context->AddMetadata("authorization", "Bearer " + token);
}

// A request as it goes over the wire, made before the run. Copies share its bytes.
struct PooledRequest {
  grpc::ByteBuffer message;
  uint32_t examples = 0;
};

// Sent in turn, from the first again after the last.
using RequestPool = std::vector<PooledRequest>;

// What became of a request.
struct Carried {
  size_t slot = 0;
  int code = 0;              // gRPC's, 0 is OK.
  std::string message = {};  // Why it failed.
  grpc::ByteBuffer answer = {};
};

// Holds one request in each of its slots. Any thread sends, one receives.
class GrpcCarrier {
 public:
  virtual ~GrpcCarrier() = default;

  // REQUIRES: the slot is free.
  virtual void Send(size_t slot, const grpc::ByteBuffer& message, Clock::time_point deadline) = 0;

  // Waits for what becomes of a request, soon after its deadline at the latest, and frees its slot.
  // Nothing: Close() was called, and all is over.
  virtual std::optional<Carried> Next() = 0;

  // Requests fail at once, now and from now on.
  virtual void Cancel() = 0;

  // REQUIRES: all slots are free and stay so.
  virtual void Close() = 0;
};

// At least one; they take turns.
using Channels = std::vector<std::shared_ptr<grpc::Channel>>;

// Requests as calls, one each. REQUIRES, of both: the carrier ends when Next() has given nothing,
// or nothing was sent.
std::unique_ptr<GrpcCarrier> MakeCalls(const LoadOptions& options, const Channels& channels,
                                       size_t slots);

// Requests on streams, many on each, answered in any order. REQUIRES: 0 < streams <= slots.
std::unique_ptr<GrpcCarrier> MakeStreams(const LoadOptions& options, const Channels& channels,
                                         size_t streams, size_t slots);

}  // namespace embershard::bench
