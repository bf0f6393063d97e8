#include "grpc/open_inference/order_call.h"

#include <exception>
#include <utility>

#include "base/mutex.h"
#include "engine/engine.h"
#include "grpc/predict/answer_now.h"
#include "grpc/status_map.h"

namespace embershard::rpc {

// Between a call and its order, of which either may end first. Thread-safe.
class OrderCall::Link {
 public:
  explicit Link(OrderCall* call) : call_(call) {}

  // Ends the call, unless it has ended.
  void Answer(const grpc::Status& status) {
    OrderCall* call;
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
  OrderCall* call_ GUARDED_BY(mutex_);  // Lives until Finish().
};

grpc::ServerUnaryReactor* OrderCall::Start(grpc::CallbackServerContext* context, OpenCalls* calls,
                                           const Give& give) {
  if (!calls->Enter()) return EndNow(context, ToGrpcStatus(ShuttingDown()));
  auto* const call = new OrderCall(calls);
  const std::shared_ptr<Link> link = call->link_;
  try {
    give([link](const LoadOutcome& outcome) { link->Answer(ToGrpcStatus(outcome.status)); },
         [link] { return link->has_ended(); });
  } catch (const std::exception&) {  // Memory has run out.
    link->Answer(grpc::Status(grpc::StatusCode::INTERNAL, "out of memory"));
  }
  return call;
}

OrderCall::OrderCall(OpenCalls* calls) : calls_(calls), link_(std::make_shared<Link>(this)) {}

void OrderCall::OnCancel() {
  link_->Answer(grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED,
                             "the call has ended before its order: one that has begun goes on"));
}

void OrderCall::OnDone() {
  calls_->Leave();
  delete this;
}

}  // namespace embershard::rpc
