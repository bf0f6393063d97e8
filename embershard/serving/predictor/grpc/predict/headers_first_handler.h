// A unary method that is told about a call as soon as its headers have arrived.
//
//   gRPC's own handler:     headers, message -> handler
//   HeadersFirstHandler:    headers -> on_headers, message -> handler

#pragma once

#include <grpc/grpc.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <functional>
#include <new>
#include <utility>

namespace embershard::rpc {

class HeadersFirstHandler final : public grpc::internal::MethodHandler {
 public:
  using Bytes = grpc::ByteBuffer;
  using Context = grpc::CallbackServerContext;
  using Handler =
      std::function<grpc::ServerUnaryReactor*(Context*, const Bytes* message, Bytes* answer)>;
  using OnHeaders = std::function<void(const Context&)>;  // Must not throw.

  HeadersFirstHandler(Handler handler, OnHeaders on_headers)
      : on_headers_(std::move(on_headers)), unary_(std::move(handler)) {}

  // Called by gRPC with only the headers; see RawService::AddUnary().
  void RunHandler(const HandlerParameter& call) override {
    on_headers_(*static_cast<Context*>(call.server_context));
    grpc_call* const core = call.call->call();
    auto* const read = new (grpc_call_arena_alloc(core, sizeof(Read))) Read(&unary_, call);
    grpc_op receive = {};
    receive.op = GRPC_OP_RECV_MESSAGE;
    receive.data.recv_message.recv_message = &read->message;
    // The message of a small request has usually arrived already. This thread handles it, because
    // waking another would take longer than parsing it.
    grpc_completion_queue* const queue = call.call->cq()->cq();
    const bool is_outermost = !std::exchange(is_reading, true);
    if (is_outermost) grpc_completion_queue_thread_local_cache_init(queue);
    grpc_call_start_batch(core, &receive, 1, read, nullptr);
    if (!is_outermost) return;
    void* tag = nullptr;
    int ok = 0;
    if (grpc_completion_queue_thread_local_cache_flush(queue, &tag, &ok) != 0) {
      auto* const next = static_cast<grpc_completion_queue_functor*>(tag);
      next->functor_run(next, ok);
    }
    is_reading = false;
  }

 private:
  using Unary = grpc::internal::CallbackUnaryHandler<Bytes, Bytes>;

  struct Read : grpc_completion_queue_functor {
    Read(Unary* unary, const HandlerParameter& call)
        : grpc_completion_queue_functor{}, unary(unary), call(call) {
      functor_run = &Done;
      inlineable = 1;
    }

    static void Done(grpc_completion_queue_functor* self, int /*ok*/) {
      auto* const read = static_cast<Read*>(self);
      Unary* const unary = read->unary;
      grpc::Status status;
      void* data = nullptr;
      // There is no message if the client cancelled or half-closed; the handler is told.
      void* const request =
          unary->Deserialize(read->call.call->call(), read->message, &status, &data);
      const HandlerParameter whole(read->call.call, read->call.server_context, request, status,
                                   data, read->call.call_requester);
      read->~Read();  // Its memory belongs to the call.
      unary->RunHandler(whole);
    }

    Unary* const unary;
    const HandlerParameter call;
    grpc_byte_buffer* message = nullptr;
  };

  // True while RunHandler() runs on this thread, since the event it takes may be another call.
  static inline thread_local bool is_reading = false;

  const OnHeaders on_headers_;
  Unary unary_;
};

}  // namespace embershard::rpc
