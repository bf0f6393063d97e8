// Services whose methods are added one by one, as callbacks over bytes.

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

// Answers a call at once.
inline grpc::ServerUnaryReactor* EndNow(grpc::CallbackServerContext* context,
                                        const grpc::Status& status) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

// The calls that a service has taken and not ended. Thread-safe.
class OpenCalls {
 public:
  // Counts a call, unless new ones are refused. If it does, Leave() must follow.
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

  // Enter() counts no call from now on.
  void RefuseNew() {
    MutexLock lock(mutex_);
    refusing_ = true;
  }

  bool refuses() {
    MutexLock lock(mutex_);
    return refusing_;
  }

  // Returns when no call is open, or at `deadline`.
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
  // `handler` gets the message, which is gRPC's, and writes its answer to the second bytes.
  // `on_headers`: see HeadersFirstHandler; null if nobody is to know.
  void AddUnary(const std::string& method, HeadersFirstHandler::Handler handler,
                HeadersFirstHandler::OnHeaders on_headers = nullptr) {
    if (on_headers) {
      Add(method, RpcMethod::CLIENT_STREAMING,  // gRPC itself reads no message then.
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
  std::deque<std::string> paths_;  // Of the methods, in their order: gRPC keeps pointers.
};

}  // namespace embershard::rpc
