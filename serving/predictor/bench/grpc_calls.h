// Requests as calls, one each.

#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "bench/grpc_carrier.h"
#include "bench/load_options.h"

namespace embershard::bench {

class GrpcCalls final : public GrpcCarrier {
 public:
  // The channels take turns. REQUIRES: at least one.
  GrpcCalls(const LoadOptions& options, const std::vector<std::shared_ptr<grpc::Channel>>& channels,
            size_t slots);
  ~GrpcCalls() override;  // REQUIRES: Next() has given nothing, or nothing was sent.

  void Send(size_t slot, const grpc::ByteBuffer& message, Clock::time_point deadline) override;
  std::optional<Carried> Next() override;
  void Cancel() override;
  void Close() override;

 private:
  struct Call {
    size_t slot = 0;
    std::optional<grpc::ClientContext> context;  // While it is under way.
    std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
    grpc::ByteBuffer answer;
    grpc::Status status;
  };

  const std::string method_;
  const std::string token_;
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs_;
  std::vector<std::unique_ptr<Call>> calls_;  // By slot.
  grpc::CompletionQueue queue_;

  std::mutex mutex_;        // Also held where a context is made, or goes.
  size_t next_stub_ = 0;    // Guarded by mutex_.
  bool cancelled_ = false;  // Guarded by mutex_.
  bool closed_ = false;     // Guarded by mutex_.
};

}  // namespace embershard::bench
