// The service of proto/embershard/v1/predictor.proto over one engine.

#ifndef EMBERSHARD_GRPC_PREDICTOR_SERVICE_H_
#define EMBERSHARD_GRPC_PREDICTOR_SERVICE_H_

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>

#include "base/clock.h"
#include "base/status.h"
#include "embershard/v1/predictor.grpc.pb.h"
#include "engine/engine.h"
#include "grpc/recorder.h"
#include "grpc/request_parser.h"
#include "grpc/server.h"
#include "telemetry/telemetry.h"

namespace embershard {

// Handlers run on gRPC's threads and never wait for the model. A call is finished when its
// request is answered: at its deadline, and when its client leaves, at the latest. Its messages
// live until then, and until the model has done with them.
//
// A call is counted by Telemetry from when its message has been received until its answer goes
// out; RefuseNew() waits until gRPC is done with it, too. Calls that gRPC ends by itself are not
// seen: a message too large, or one that is no PredictRequest at all.
class PredictorService final : public v1::Predictor::CallbackService {
 public:
  // Owns neither `engine` nor `recorder` (null: none), which must outlive it.
  PredictorService(Engine* engine, Recorder* recorder, const GrpcServerOptions& options);
  ~PredictorService() override;

  // From now on every Predict is answered UNAVAILABLE. Returns when the calls that had
  // arrived before are done, or at `deadline`.
  void RefuseNew(Clock::time_point deadline);

  grpc::ServerUnaryReactor* Predict(grpc::CallbackServerContext* context,
                                    const v1::PredictRequest* message,
                                    v1::PredictResponse* response) override;

  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* context,
                                     const v1::GetModelRequest* message,
                                     v1::GetModelResponse* response) override;

 private:
  class Call;
  class Messages;
  class MessagesAllocator;

  // Once the engine has the request, its answer ends the call, and this is ok.
  Status StartPredict(Call* call);
  // The one end of every Predict call, whatever became of it: counts it and sends the answer.
  // `answer`: as far as the request came. Called once a call; as Finish() for what is behind it.
  void End(Call* call, const Status& status, const Response& answer) const;
  Status Describe(const v1::GetModelRequest& message, v1::GetModelResponse* response) const;
  // Counts a call, unless new ones are refused. If it does, Leave() must follow.
  bool Enter();
  void Leave();
  // Nothing of this object may be touched behind it: the server may be gone.
  void Finish(grpc::CallbackServerContext* context, grpc::ServerUnaryReactor* reactor,
              const Status& status) const;
  Clock::time_point DeadlineOf(const grpc::CallbackServerContext& context,
                               Clock::time_point now) const;

  Engine* const engine_;
  Telemetry* const telemetry_;  // The engine's.
  Recorder* const recorder_;    // Null: nothing is recorded.
  const GrpcServerOptions options_;
  const RequestParser parser_;
  const std::unique_ptr<MessagesAllocator> messages_;

  std::mutex mutex_;
  std::condition_variable idle_;  // Signalled when in_flight_ becomes 0.
  size_t in_flight_ = 0;          // Guarded by mutex_. Calls that count.
  bool refusing_ = false;         // Guarded by mutex_.
};

}  // namespace embershard

#endif  // EMBERSHARD_GRPC_PREDICTOR_SERVICE_H_
