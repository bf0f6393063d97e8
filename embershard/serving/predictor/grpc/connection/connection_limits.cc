#include "grpc/connection/connection_limits.h"

#include <grpcpp/server_builder.h>

#include <algorithm>
#include <cstdint>
#include <limits>

namespace embershard::rpc {
namespace {

constexpr int kNever = std::numeric_limits<int>::max();  // gRPC's value for "never".
constexpr int kHandshakeMilliseconds = 10000;

// Time for the calls of a connection that reached its age limit to end.
constexpr int kAgeGraceMilliseconds = 30000;

// Number of pings that may come too soon before the connection is closed.
constexpr int kPingStrikes = 2;

int Milliseconds(std::chrono::milliseconds time) {
  return static_cast<int>(std::min<int64_t>(time.count(), kNever));
}

int MillisecondsOrNever(std::chrono::milliseconds time) {
  return time.count() == 0 ? kNever : Milliseconds(time);
}

}  // namespace

void Apply(const ConnectionLimits& limits, grpc::ServerBuilder* builder) {
  const auto set = [builder](const char* argument, int value) {
    builder->AddChannelArgument(argument, value);
  };
  set(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMilliseconds);
  set(GRPC_ARG_MAX_CONCURRENT_STREAMS, limits.max_calls);
  set(GRPC_ARG_MAX_CONNECTION_IDLE_MS, MillisecondsOrNever(limits.idle));
  set(GRPC_ARG_MAX_CONNECTION_AGE_MS, MillisecondsOrNever(limits.age));
  set(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, kAgeGraceMilliseconds);
  set(GRPC_ARG_KEEPALIVE_TIME_MS, MillisecondsOrNever(limits.keepalive));
  set(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, MillisecondsOrNever(limits.keepalive_timeout));
  // Otherwise every ping of a connection without calls counts as too soon.
  set(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  set(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, Milliseconds(limits.min_ping));
  set(GRPC_ARG_HTTP2_MAX_PING_STRIKES, limits.min_ping.count() == 0 ? 0 : kPingStrikes);
  // gRPC checks a compressed message's size only after decompressing it in memory: a megabyte of
  // zeros becomes a gigabyte, whatever the size limit.
  for (const auto algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
    builder->SetCompressionAlgorithmSupportStatus(algorithm, false);
  }
  // The compression filter and channelz are not used.
  set(GRPC_ARG_ENABLE_PER_MESSAGE_COMPRESSION, 0);
  set(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  set(GRPC_ARG_ENABLE_CHANNELZ, 0);
}

}  // namespace embershard::rpc
