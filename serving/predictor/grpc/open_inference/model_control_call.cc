#include "grpc/open_inference/model_control_call.h"

#include <exception>
#include <utility>

#include "base/mutex.h"
#include "engine/engine.h"
#include "grpc/predict/raw_service.h"
#include "grpc/status_map.h"

namespace embershard::rpc {

// Between a call and its order, of which either may end first. Thread-safe.
class ModelControlCall::Link {
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

grpc::ServerUnaryReactor* ModelControlCall::Start(grpc::CallbackServerContext* context,
                                                  OpenCalls* calls, const Give& give) {
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

ModelControlCall::ModelControlCall(OpenCalls* calls)
    : calls_(calls), link_(std::make_shared<Link>(this)) {}

void ModelControlCall::OnCancel() {
  link_->Answer(grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED,
                             "the call has ended before its order: one that has begun goes on"));
}

void ModelControlCall::OnDone() {
  calls_->Leave();
  delete this;
}

}  // namespace embershard::rpc
