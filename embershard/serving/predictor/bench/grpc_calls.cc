#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/grpc_transport.h"

namespace embershard::bench {
namespace {

class GrpcCalls final : public GrpcTransport {
 public:
  GrpcCalls(const LoadOptions& options, const Channels& channels, size_t slots)
      : method_(options.method), token_(options.token) {
    for (const auto& channel : channels) {
      stubs_.push_back(std::make_unique<grpc::GenericStub>(channel));
    }
    for (size_t slot = 0; slot < slots; ++slot) {
      calls_.push_back(std::make_unique<Call>());
      calls_.back()->slot = slot;
    }
  }

  ~GrpcCalls() override {
    Close();
    void* tag;
    bool ok;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  void Send(size_t slot, const grpc::ByteBuffer& message, Clock::time_point deadline) override {
    Call* const call = calls_[slot].get();
    grpc::GenericStub* stub;
    {
      const std::lock_guard lock(mutex_);
      call->context.emplace();
      Authorize(token_, &*call->context);
      if (cancelled_) call->context->TryCancel();
      stub = stubs_[next_stub_].get();
      next_stub_ = (next_stub_ + 1) % stubs_.size();
    }
    call->context->set_deadline(SystemTime(deadline));
    call->reader = stub->PrepareUnaryCall(&*call->context, method_, message, &queue_);
    call->reader->StartCall();
    call->reader->Finish(&call->answer, &call->status, call);
  }

  std::optional<Reply> Next() override {
    void* tag;
    bool ok;
    if (!queue_.Next(&tag, &ok)) return {};
    Call* const call = static_cast<Call*>(tag);
    Reply reply = {.slot = call->slot,
                   .code = call->status.error_code(),
                   .message = call->status.error_message(),
                   .answer = call->answer};
    call->status = grpc::Status::OK;
    call->answer.Clear();
    call->reader.reset();
    const std::lock_guard lock(mutex_);
    call->context.reset();
    return reply;
  }

  void Cancel() override {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    for (const auto& call : calls_) {
      if (call->context.has_value()) call->context->TryCancel();
    }
  }

  void Close() override {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(closed_, true)) queue_.Shutdown();
  }

 private:
  struct Call {
    size_t slot = 0;
    std::optional<grpc::ClientContext> context;  // Set while the call is open.
    std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
    grpc::ByteBuffer answer;
    grpc::Status status;
  };

  const std::string method_;
  const std::string token_;
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs_;
  std::vector<std::unique_ptr<Call>> calls_;  // Indexed by slot.
  grpc::CompletionQueue queue_;

  std::mutex mutex_;        // Also held while a context is made or destroyed.
  size_t next_stub_ = 0;    // Guarded by mutex_.
  bool cancelled_ = false;  // Guarded by mutex_.
  bool closed_ = false;     // Guarded by mutex_.
};

}  // namespace

std::unique_ptr<GrpcTransport> MakeCallTransport(const LoadOptions& options,
                                                 const Channels& channels, size_t slots) {
  return std::make_unique<GrpcCalls>(options, channels, slots);
}

}  // namespace embershard::bench
