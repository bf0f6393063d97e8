// One call that requests a load or unload, and waits until it is carried out.

#pragma once

#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <utility>

#include "engine/engine.h"
#include "engine/request_completer.h"
#include "grpc/predict/raw_service.h"
#include "grpc/status_map.h"
#include "registry/model_control.h"

namespace embershard::rpc {

// Waits on no thread. Lives until gRPC and its order are done with it.
class ModelControlCall final : public grpc::ServerUnaryReactor {
 public:
  // Hands the order to a ModelControl.
  using Give = std::function<void(ModelControl::Done, ModelControl::Abandoned)>;

  // Answers the call with what became of the order. Where the call's deadline passes or its client
  // leaves before, the call ends then; an order that has not begun is not carried out, and one that
  // has is. `calls` counts the call until gRPC is done with it, or has it refused; not owned.
  static grpc::ServerUnaryReactor* Start(grpc::CallbackServerContext* context, OpenCalls* calls,
                                         const Give& give) {
    if (!calls->Enter()) return EndNow(context, ToGrpcStatus(ShuttingDown()));
    const std::shared_ptr<ModelControlCall> call(new ModelControlCall(calls));
    call->self_ = call;
    try {
      give([call](const LoadOutcome& outcome) { call->Answer(ToGrpcStatus(outcome.status)); },
           [call] { return call->ended_.load(); });
    } catch (const std::exception&) {  // Memory has run out.
      call->Answer(grpc::Status(grpc::StatusCode::INTERNAL, "out of memory"));
    }
    return call.get();
  }

  void OnCancel() override {
    Answer(grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED,
                        "the call has ended before its order: one that has begun goes on"));
  }

  void OnDone() override {
    const std::shared_ptr<ModelControlCall> self = std::move(self_);
    calls_->Leave();
  }

 private:
  explicit ModelControlCall(OpenCalls* calls) : calls_(calls) {}

  // Ends the call, unless it has ended. Any thread.
  void Answer(const grpc::Status& status) {
    if (!ended_.exchange(true)) Finish(status);
  }

  OpenCalls* const calls_;
  std::atomic<bool> ended_ = false;
  std::shared_ptr<ModelControlCall> self_;  // Until OnDone(); the order has the other pointers.
};

}  // namespace embershard::rpc
