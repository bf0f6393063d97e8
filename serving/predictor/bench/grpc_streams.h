// Requests on streams, many on each, answered in any order.

#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "bench/grpc_carrier.h"
#include "bench/load_options.h"

namespace embershard::bench {

// Each stream carries the same share of the slots. It is opened when a request needs it, also
// again after it has ended, which its requests fail by.
class GrpcStreams final : public GrpcCarrier {
 public:
  // The channels take turns. REQUIRES: at least one; 0 < streams <= slots.
  GrpcStreams(const LoadOptions& options,
              const std::vector<std::shared_ptr<grpc::Channel>>& channels, size_t streams,
              size_t slots);
  ~GrpcStreams() override;  // REQUIRES: Next() has given nothing, or nothing was sent.

  void Send(size_t slot, const grpc::ByteBuffer& message, Clock::time_point deadline) override;
  std::optional<Carried> Next() override;
  void Cancel() override;
  void Close() override;

 private:
  struct Stream;

  // What gRPC has done for a stream.
  enum class Step { kStart, kRead, kWrite, kFinish };
  struct Event {
    Stream* stream;
    Step step;
  };

  struct Stream {
    explicit Stream(std::shared_ptr<grpc::Channel> channel);

    grpc::GenericStub stub;
    Event start{this, Step::kStart};
    Event read{this, Step::kRead};
    Event write{this, Step::kWrite};
    Event finish{this, Step::kFinish};
    grpc::ByteBuffer answer;
    grpc::Status status;
    // Guarded by mutex_.
    std::optional<grpc::ClientContext> context;  // While it is open.
    std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call;
    std::deque<size_t> waiting;  // Slots whose messages are to be written.
    bool started = false;
    bool writing = false;
    bool broken = false;  // Nothing more can be read: it is to be finished.
  };

  struct Slot {
    bool used = false;
    uint64_t use = 0;  // How often: a late answer is not taken for that of the next request.
    Clock::time_point deadline;
    grpc::ByteBuffer message;  // Until it is written.
  };

  void Handle(const Event& event, bool ok);
  // REQUIRES, of all below: mutex_ is held.
  void Open(Stream* stream);
  void Write(Stream* stream);
  void Take(Stream* stream);
  void End(Stream* stream);
  void Free(size_t slot, int code, std::string message, grpc::ByteBuffer answer);
  void ExpireLate();
  void ShutdownIfClosed();
  Stream* StreamOf(size_t slot) { return streams_[slot % streams_.size()].get(); }

  const std::string method_;
  const std::string token_;
  std::vector<std::unique_ptr<Stream>> streams_;
  grpc::CompletionQueue queue_;

  std::mutex mutex_;
  std::vector<Slot> slots_;    // Guarded by mutex_, as all below.
  std::deque<Carried> ended_;  // For Next().
  Clock::time_point next_look_;
  bool cancelled_ = false;
  bool closed_ = false;
  bool shut_down_ = false;
};

}  // namespace embershard::bench
