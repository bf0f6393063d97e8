// The messages of one call, for as long as somebody reads them.

#ifndef EMBERSHARD_GRPC_KEPT_MESSAGES_H_
#define EMBERSHARD_GRPC_KEPT_MESSAGES_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/message_allocator.h>

#include <memory>
#include <utility>

#include "grpc/wire_messages.h"

namespace embershard {

// gRPC lets go of a call's messages when the call is done. The model may still read the request
// then, so who needs them keeps them. `Wire` is a WireMessages.
template <class Wire>
class KeptMessages final : public grpc::MessageHolder<typename Wire::Asked, typename Wire::Answer> {
 public:
  class Allocator final
      : public grpc::MessageAllocator<typename Wire::Asked, typename Wire::Answer> {
   public:
    KeptMessages* AllocateMessages() override {
      auto messages = std::make_shared<KeptMessages>();
      messages->own_ = messages;
      return messages.get();
    }
  };

  KeptMessages() {
    this->set_request(wire_.asked());
    this->set_response(wire_.answer());
  }

  // Those of a call whose service uses the allocator. REQUIRES: gRPC has not let go.
  static std::shared_ptr<WireMessages> Of(grpc::CallbackServerContext* context) {
    auto* const kept = static_cast<KeptMessages*>(context->GetRpcAllocatorState());
    return std::shared_ptr<WireMessages>(kept->own_, &kept->wire_);
  }

  void Release() override { const std::shared_ptr<KeptMessages> last = std::move(own_); }

 private:
  Wire wire_;
  std::shared_ptr<KeptMessages> own_;  // Null once gRPC has let go.
};

}  // namespace embershard

#endif  // EMBERSHARD_GRPC_KEPT_MESSAGES_H_
