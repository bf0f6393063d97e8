// One call that asks for one prediction, in any protocol.

#ifndef EMBERSHARD_GRPC_PREDICT_PREDICT_CALL_H_
#define EMBERSHARD_GRPC_PREDICT_PREDICT_CALL_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>
#include <memory>

#include "base/status.h"
#include "grpc/predict/open_calls.h"
#include "grpc/predict/predict_handler.h"
#include "grpc/predict/wire_messages.h"

namespace embershard::rpc {

// Ends itself when gRPC is done with it.
class PredictCall final : public grpc::ServerUnaryReactor {
 public:
  // Answers `message`, which is emptied, in `answer`; gRPC owns both. `messages`: of the call's
  // protocol. Owns neither `handler` nor `calls`, which counts the call until gRPC is done with it,
  // or has it refused. `retry_pushback`: see ServerOptions.
  static grpc::ServerUnaryReactor* Start(const PredictHandler* handler, OpenCalls* calls,
                                         std::chrono::milliseconds retry_pushback,
                                         grpc::CallbackServerContext* context,
                                         std::shared_ptr<WireMessages> messages,
                                         const grpc::ByteBuffer* message, grpc::ByteBuffer* answer);

  // The client cancelled, or gRPC says that the deadline has passed. Before OnDone(), and not
  // before Start() has returned.
  void OnCancel() override { handler_->Cancel(&exchange_); }
  void OnDone() override;
  // Both on the thread that learns of it: gRPC would hand each call to a thread of another pool,
  // only to forget it there, at 4 % and more of what a small request costs. gRPC's headers keep
  // this for reactors of its own, whose reactions do nothing; ours wait for short locks only.
  bool InternalInlineable() override { return true; }

 private:
  PredictCall(const PredictHandler* handler, OpenCalls* calls,
              std::chrono::milliseconds retry_pushback, grpc::CallbackServerContext* context,
              std::shared_ptr<WireMessages> messages, grpc::ByteBuffer* answer);

  Status Read(grpc::ByteBuffer* message);
  grpc::Status Written() const;

  // Nothing of this object may be touched behind it.
  void Send(const Status& status);

  const PredictHandler* const handler_;
  OpenCalls* const calls_;
  const std::chrono::milliseconds retry_pushback_;
  const std::shared_ptr<WireMessages> messages_;
  grpc::ByteBuffer* const answer_;
  const bool in_time_;  // If not, it is to be refused.
  Exchange exchange_;
};

}  // namespace embershard::rpc

#endif  // EMBERSHARD_GRPC_PREDICT_PREDICT_CALL_H_
