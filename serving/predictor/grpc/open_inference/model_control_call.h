// One call that requests a load or unload, and waits until it is carried out.

#pragma once

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>

#include "engine/model_control.h"
#include "grpc/predict/open_calls.h"

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
                                         const Give& give);

  void OnCancel() override;
  void OnDone() override;

 private:
  class Link;

  explicit ModelControlCall(OpenCalls* calls);

  OpenCalls* const calls_;
  const std::shared_ptr<Link> link_;  // The order has the other end.
};

}  // namespace embershard::rpc
