// A connection to the server under load.

#ifndef EMBERSHARD_BENCH_GRPC_CHANNEL_H_
#define EMBERSHARD_BENCH_GRPC_CHANNEL_H_

#include <grpcpp/channel.h>

#include <memory>

#include "bench/load_options.h"

namespace embershard::bench {

// One that no other channel shares, and on which nothing is sent twice.
std::shared_ptr<grpc::Channel> MakeChannel(const LoadOptions& options);

}  // namespace embershard::bench

#endif  // EMBERSHARD_BENCH_GRPC_CHANNEL_H_
