#include "grpc/predict/raw_service.h"

#include <grpcpp/generic/async_generic_service.h>  // CallbackBidiHandler, in every release.

#include <utility>

namespace embershard::rpc {

using grpc::internal::CallbackBidiHandler;
using grpc::internal::CallbackUnaryHandler;
using grpc::internal::RpcServiceMethod;

void RawService::AddUnary(const std::string& method,
                          std::function<UnaryReactor*(Context*, const Bytes*, Bytes*)> handler) {
  Add(method, RpcServiceMethod::NORMAL_RPC,
      new CallbackUnaryHandler<Bytes, Bytes>(std::move(handler)));
}

void RawService::AddStream(const std::string& method,
                           std::function<StreamReactor*(Context*)> handler) {
  Add(method, RpcServiceMethod::BIDI_STREAMING,
      new CallbackBidiHandler<Bytes, Bytes>(std::move(handler)));
}

void RawService::Add(const std::string& method, RpcServiceMethod::RpcType type,
                     grpc::internal::MethodHandler* handler) {
  const auto index = static_cast<int>(paths_.size());
  paths_.push_back(prefix_ + method);
  AddMethod(new RpcServiceMethod(paths_.back().c_str(), type, nullptr));
  MarkMethodRawCallback(index, handler);
}

}  // namespace embershard::rpc
