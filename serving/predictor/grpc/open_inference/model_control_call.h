// One call that requests a load or unload, and waits until it is carried out.

#pragma once

#include <grpcpp/support/server_callback.h>

#include <exception>
#include <functional>
#include <memory>
#include <utility>

#include "base/mutex.h"
#include "engine/engine.h"
#include "engine/model_control.h"
#include "grpc/predict/raw_service.h"

namespace embershard::rpc {

// Waits on no thread. Ends itself when gRPC is done with it; the order may take longer.
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
    auto* const call = new ModelControlCall(calls);
    const std::shared_ptr<Link> link = call->link_;
    try {
      give([link](const LoadOutcome& outcome) { link->Answer(ToGrpcStatus(outcome.status)); },
           [link] { return link->has_ended(); });
    } catch (const std::exception&) {  // Memory has run out.
      link->Answer(grpc::Status(grpc::StatusCode::INTERNAL, "out of memory"));
    }
    return call;
  }

  void OnCancel() override {
    link_->Answer(grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED,
                               "the call has ended before its order: one that has begun goes on"));
  }

  void OnDone() override {
    calls_->Leave();
    delete this;
  }

 private:
  // Between a call and its order, of which either may end first. Thread-safe.
  class Link {
   public:
    explicit Link(ModelControlCall* call) : call_(call) {}

    // Ends the call, unless it has ended.
    void Answer(const grpc::Status& status) {
      ModelControlCall* call;
      {
        MutexLock lock(mutex_);
        call = std::exchange(call_, nullptr);
      }
      if (call != nullptr) call->Finish(status);
    }

    bool has_ended() {
      MutexLock lock(mutex_);
      return call_ == nullptr;
    }

   private:
    Mutex mutex_;
    ModelControlCall* call_ GUARDED_BY(mutex_);  // Lives until Finish().
  };

  explicit ModelControlCall(OpenCalls* calls)
      : calls_(calls), link_(std::make_shared<Link>(this)) {}

  OpenCalls* const calls_;
  const std::shared_ptr<Link> link_;  // The order has the other end.
};

}  // namespace embershard::rpc
