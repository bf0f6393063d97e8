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

// Blocks no thread. Lives until gRPC and its control request have finished with it.
class ModelControlCall final : public grpc::ServerUnaryReactor {
 public:
  using Give = std::function<void(ModelControl::Done, ModelControl::Abandoned)>;

  // If the deadline passes or the client leaves before the load or unload is done, the call ends; a
  // load or unload that has begun continues, one that has not is dropped. `calls` (not owned)
  // counts the call until gRPC has finished with it, or refuses it.
  static grpc::ServerUnaryReactor* Start(grpc::CallbackServerContext* context, OpenCalls* calls,
                                         const Give& give) {
    if (!calls->Enter()) return EndNow(context, ToGrpcStatus(ShuttingDown()));
    const std::shared_ptr<ModelControlCall> call(new ModelControlCall(calls));
    call->self_ = call;
    try {
      give([call](const LoadOutcome& outcome) { call->Answer(ToGrpcStatus(outcome.status)); },
           [call] { return call->ended_.load(); });
    } catch (const std::exception&) {  // Out of memory.
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

  void Answer(const grpc::Status& status) {
    if (!ended_.exchange(true)) Finish(status);
  }

  OpenCalls* const calls_;
  std::atomic<bool> ended_ = false;
  std::shared_ptr<ModelControlCall> self_;  // Held until OnDone().
};

}  // namespace embershard::rpc
