// Calls that are answered by the handler itself, at once: questions, and what is refused.

#ifndef EMBERSHARD_GRPC_PREDICT_ANSWER_NOW_H_
#define EMBERSHARD_GRPC_PREDICT_ANSWER_NOW_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <exception>
#include <string>

#include "base/status.h"
#include "grpc/predict/message_parser.h"
#include "grpc/predict/wire_messages.h"
#include "grpc/status_map.h"

namespace embershard::rpc {

inline grpc::ServerUnaryReactor* EndNow(grpc::CallbackServerContext* context,
                                        const grpc::Status& status) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

// Ends a call whose message is a Request, as ParseMessage() reads it. `answer` gets it, fills the
// Response and returns a Status; where that is ok, the response is written to `bytes`.
template <class Request, class Response, class Answer>
grpc::ServerUnaryReactor* AnswerNow(grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer* message, grpc::ByteBuffer* bytes,
                                    Answer answer) {
  Status status;
  try {
    Request request;
    Response response;
    // The message is gRPC's own, and no constant.
    status = ParseMessage(const_cast<grpc::ByteBuffer*>(message), &request);
    if (status.ok()) status = answer(request, &response);
    if (status.ok()) *bytes = WriteMessage(response);
  } catch (const std::exception& error) {  // Only memory can run out.
    status = Internal(std::string("the call failed: ") + error.what());
  }
  return EndNow(context, ToGrpcStatus(status));
}

}  // namespace embershard::rpc

#endif  // EMBERSHARD_GRPC_PREDICT_ANSWER_NOW_H_
