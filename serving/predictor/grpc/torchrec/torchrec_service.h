// The service of proto/torchrec/predictor.proto over what is served.

#ifndef EMBERSHARD_GRPC_TORCHREC_TORCHREC_SERVICE_H_
#define EMBERSHARD_GRPC_TORCHREC_TORCHREC_SERVICE_H_

#include "base/clock.h"
#include "engine/served_models.h"
#include "grpc/predict/open_calls.h"
#include "grpc/predict/predict_handler.h"
#include "grpc/server.h"
#include "grpc/torchrec/torchrec_messages.h"
#include "torchrec/predictor.grpc.pb.h"

namespace embershard::rpc {

// As PredictorService, but its calls are not recorded.
class TorchRecService final
    : public predictor::Predictor::WithRawCallbackMethod_Predict<predictor::Predictor::Service> {
 public:
  // Does not own `served`, which must outlive it.
  TorchRecService(ServedModels* served, const ServerOptions& options, OpenConnections* connections);

  // From now on every call is answered UNAVAILABLE.
  void RefuseNew() { calls_.RefuseNew(); }
  // Returns when the calls that had arrived before are done, or at `deadline`.
  void WaitUntilDone(Clock::time_point deadline) { calls_.WaitUntilIdle(deadline); }

  grpc::ServerUnaryReactor* Predict(grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer* message,
                                    grpc::ByteBuffer* answer) override;

 private:
  const ServerOptions options_;
  const PredictHandler handler_;
  OpenCalls calls_;
};

}  // namespace embershard::rpc

#endif  // EMBERSHARD_GRPC_TORCHREC_TORCHREC_SERVICE_H_
