// A service whose methods are added one by one, as callbacks over bytes.

#pragma once

#include <grpcpp/generic/async_generic_service.h>  // CallbackBidiHandler, in every release.
#include <grpcpp/impl/service_type.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "grpc/predict/headers_first_handler.h"

namespace embershard::rpc {

inline grpc::ServerUnaryReactor* EndNow(grpc::CallbackServerContext* context,
                                        const grpc::Status& status) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

// Thread-safe.
class OpenCalls {
 public:
  // Returns false if new calls are refused. After true, Leave() must follow.
  bool Enter() {
    MutexLock lock(mutex_);
    if (refusing_) return false;
    ++open_;
    return true;
  }

  void Leave() {
    MutexLock lock(mutex_);
    if (--open_ == 0) idle_.NotifyAll();
  }

  void RefuseNew() {
    MutexLock lock(mutex_);
    refusing_ = true;
  }

  bool refuses() {
    MutexLock lock(mutex_);
    return refusing_;
  }

  void WaitUntilIdle(Clock::time_point deadline) {
    MutexLock lock(mutex_);
    while (open_ > 0 && idle_.WaitUntil(mutex_, deadline)) {
    }
  }

 private:
  Mutex mutex_;
  CondVar idle_;  // Signalled when open_ becomes 0.
  size_t open_ GUARDED_BY(mutex_) = 0;
  bool refusing_ GUARDED_BY(mutex_) = false;
};

class RawService : public grpc::Service {
 public:
  using Bytes = grpc::ByteBuffer;
  using Context = grpc::CallbackServerContext;
  using UnaryReactor = grpc::ServerUnaryReactor;
  using StreamReactor = grpc::ServerBidiReactor<Bytes, Bytes>;

  // `name`: "package.Service".
  explicit RawService(const std::string& name) : prefix_("/" + name + "/") {}

 protected:
  // `handler` receives the message, which gRPC owns, and writes its answer to the second buffer.
  // `on_headers`: see HeadersFirstHandler; may be null.
  void AddUnary(const std::string& method, HeadersFirstHandler::Handler handler,
                HeadersFirstHandler::OnHeaders on_headers = nullptr) {
    if (on_headers) {
      Add(method, RpcMethod::CLIENT_STREAMING,  // So that gRPC does not read the message itself.
          new HeadersFirstHandler(std::move(handler), std::move(on_headers)));
    } else {
      Add(method, RpcMethod::NORMAL_RPC,
          new grpc::internal::CallbackUnaryHandler<Bytes, Bytes>(std::move(handler)));
    }
  }
  void AddStream(const std::string& method, std::function<StreamReactor*(Context*)> handler) {
    Add(method, RpcMethod::BIDI_STREAMING,
        new grpc::internal::CallbackBidiHandler<Bytes, Bytes>(std::move(handler)));
  }

 private:
  using RpcMethod = grpc::internal::RpcServiceMethod;

  void Add(const std::string& method, RpcMethod::RpcType type,
           grpc::internal::MethodHandler* handler) {
    const auto index = static_cast<int>(paths_.size());
    paths_.push_back(prefix_ + method);
    AddMethod(new RpcMethod(paths_.back().c_str(), type, nullptr));
    MarkMethodRawCallback(index, handler);
  }

  const std::string prefix_;
  std::deque<std::string> paths_;  // Paths of the methods; a deque because gRPC keeps pointers.
};

}  // namespace embershard::rpc
