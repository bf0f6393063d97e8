#include "bench/grpc_calls.h"

#include <chrono>
#include <utility>

namespace embershard::bench {

GrpcCalls::GrpcCalls(const LoadOptions& options,
                     const std::vector<std::shared_ptr<grpc::Channel>>& channels, size_t slots)
    : method_(options.method), token_(options.token) {
  for (const auto& channel : channels) {
    stubs_.push_back(std::make_unique<grpc::GenericStub>(channel));
  }
  for (size_t slot = 0; slot < slots; ++slot) {
    calls_.push_back(std::make_unique<Call>());
    calls_.back()->slot = slot;
  }
}

GrpcCalls::~GrpcCalls() {
  Close();
  void* tag;
  bool ok;
  while (queue_.Next(&tag, &ok)) {
  }
}

void GrpcCalls::Send(size_t slot, const grpc::ByteBuffer& message, Clock::time_point deadline) {
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

std::optional<Carried> GrpcCalls::Next() {
  void* tag;
  bool ok;
  if (!queue_.Next(&tag, &ok)) return {};
  Call* const call = static_cast<Call*>(tag);
  Carried carried = {.slot = call->slot,
                     .code = call->status.error_code(),
                     .message = call->status.error_message(),
                     .answer = call->answer};
  call->status = grpc::Status::OK;
  call->answer.Clear();
  call->reader.reset();
  const std::lock_guard lock(mutex_);
  call->context.reset();
  return carried;
}

void GrpcCalls::Close() {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(closed_, true)) queue_.Shutdown();
}

void GrpcCalls::Cancel() {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
  for (const auto& call : calls_) {
    if (call->context.has_value()) call->context->TryCancel();
  }
}

}  // namespace embershard::bench
