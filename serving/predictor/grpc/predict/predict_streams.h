// The open streams of a service, and who looks after them.

#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "grpc/predict/predict_handler.h"
#include "grpc/predict/predict_stream.h"
#include "grpc/server.h"

namespace embershard::rpc {

PredictStreamOptions StreamOptionsOf(const ServerOptions& options);

// Thread-safe. A thread of its own looks for streams whose clients read nothing.
class PredictStreams {
 public:
  // `handler` must outlive it, and it all its streams.
  PredictStreams(const PredictHandler* handler, MakeMessages make_messages,
                 const PredictStreamOptions& options);
  PredictStreams(const PredictStreams&) = delete;
  PredictStreams& operator=(const PredictStreams&) = delete;
  ~PredictStreams();

  // A new call. The stream is this object's, and gRPC's until that is done with it.
  PredictStream* Open(grpc::CallbackServerContext* context);

  // Closes every stream, also those that are opened later.
  void Close();
  // Returns when all have ended, or at `deadline`.
  void WaitUntilEnded(Clock::time_point deadline);

 private:
  using Streams = std::vector<std::shared_ptr<PredictStream>>;

  void Remove(PredictStream* stream);
  Streams Copied() const REQUIRES(mutex_);
  void Watch();

  const PredictHandler* const handler_;
  const MakeMessages make_messages_;
  const PredictStreamOptions options_;
  std::atomic<size_t> held_bytes_ = 0;  // By all streams.

  Mutex mutex_;
  CondVar changed_;  // Signalled when the fields below change.
  std::unordered_map<PredictStream*, std::shared_ptr<PredictStream>> open_ GUARDED_BY(mutex_);
  bool closing_ GUARDED_BY(mutex_) = false;
  bool stopping_ GUARDED_BY(mutex_) = false;

  std::thread watch_;  // Last, so that Watch() sees every field built.
};

}  // namespace embershard::rpc
