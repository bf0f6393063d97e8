// Services whose methods are added one by one, as callbacks over bytes: what is no message is
// refused in words, and what would take far more memory than bytes is not parsed.

#pragma once

#include <grpcpp/impl/service_type.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <deque>
#include <exception>
#include <functional>
#include <string>

#include "base/status.h"
#include "grpc/predict/message_parser.h"
#include "grpc/predict/wire_messages.h"
#include "grpc/status_map.h"

namespace embershard::rpc {

// Answers a call at once.
inline grpc::ServerUnaryReactor* EndNow(grpc::CallbackServerContext* context,
                                        const grpc::Status& status) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

class RawService : public grpc::Service {
 public:
  using Bytes = grpc::ByteBuffer;
  using Context = grpc::CallbackServerContext;
  using UnaryReactor = grpc::ServerUnaryReactor;
  using StreamReactor = grpc::ServerBidiReactor<Bytes, Bytes>;

  // `name`: "package.Service".
  explicit RawService(const std::string& name) : prefix_("/" + name + "/") {}

 protected:
  // `handler` gets the message, which is gRPC's, and writes its answer to the second bytes.
  void AddUnary(const std::string& method,
                std::function<UnaryReactor*(Context*, const Bytes*, Bytes*)> handler);
  void AddStream(const std::string& method, std::function<StreamReactor*(Context*)> handler);

  // handle(context, request, bytes, status): either gives the reactor of the call or null, and the
  // call ends with the status at once.
  template <class Request, class Handle>
  void AddParsed(const std::string& method, Handle handle) {
    AddUnary(method, [handle](Context* context, const Bytes* message, Bytes* bytes) {
      UnaryReactor* reactor = nullptr;
      Status status;
      try {
        Request request;
        // The message is gRPC's own, and no constant.
        status = ParseMessage(const_cast<Bytes*>(message), &request);
        if (status.ok()) reactor = handle(context, request, bytes, &status);
      } catch (const std::exception& error) {  // Only memory can run out.
        status = Internal("the call failed: ", error.what());
      }
      return reactor != nullptr ? reactor : EndNow(context, ToGrpcStatus(status));
    });
  }

  // answer(request, response): fills the response, and returns a Status.
  template <class Request, class Response, class Answer>
  void AddQuestion(const std::string& method, Answer answer) {
    AddParsed<Request>(
        method,
        [answer](Context*, const Request& request, Bytes* bytes, Status* status) -> UnaryReactor* {
          Response response;
          *status = answer(request, &response);
          if (status->ok()) *bytes = WriteMessage(response);
          return nullptr;
        });
  }

 private:
  void Add(const std::string& method, grpc::internal::RpcServiceMethod::RpcType type,
           grpc::internal::MethodHandler* handler);

  const std::string prefix_;
  std::deque<std::string> paths_;  // Of the methods, in their order: gRPC keeps pointers.
};

}  // namespace embershard::rpc
