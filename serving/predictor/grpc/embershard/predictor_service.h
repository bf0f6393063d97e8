// The service of proto/embershard/v1/predictor.proto over what is served.

#ifndef EMBERSHARD_GRPC_EMBERSHARD_PREDICTOR_SERVICE_H_
#define EMBERSHARD_GRPC_EMBERSHARD_PREDICTOR_SERVICE_H_

#include "base/clock.h"
#include "base/status.h"
#include "embershard/v1/predictor.grpc.pb.h"
#include "engine/served_models.h"
#include "grpc/embershard/predict_messages.h"
#include "grpc/predict/open_calls.h"
#include "grpc/predict/predict_handler.h"
#include "grpc/predict/predict_streams.h"
#include "grpc/recorder.h"
#include "grpc/server.h"

namespace embershard::rpc {

// Requests come as bytes, which are looked at before they are parsed; and on a stream, one that is
// no PredictRequest fails alone.
using PredictorServiceBase =
    v1::Predictor::WithRawCallbackMethod_Predict<v1::Predictor::WithRawCallbackMethod_PredictStream<
        v1::Predictor::WithRawCallbackMethod_GetModel<v1::Predictor::Service>>>;

// Handlers run on gRPC's threads and never wait for the model. A call is finished when its
// request is answered: at its deadline, and when its client leaves, at the latest. Its messages
// live until then, and until the model has done with them.
//
// WaitUntilDone() waits until gRPC is done with the calls. Calls whose message never
// comes, or is too large, are not counted by anybody.
class PredictorService final : public PredictorServiceBase {
 public:
  // Owns neither `served` nor `recorder` (null: none), which must outlive it.
  PredictorService(ServedModels* served, Recorder* recorder, const ServerOptions& options,
                   OpenConnections* connections);

  // From now on every Predict is answered UNAVAILABLE, and streams read nothing more.
  void RefuseNew();
  // Returns when the calls that had arrived before are done, or at `deadline`.
  void WaitUntilDone(Clock::time_point deadline);

  grpc::ServerUnaryReactor* Predict(grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer* message,
                                    grpc::ByteBuffer* answer) override;

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* PredictStream(
      grpc::CallbackServerContext* context) override;

  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* message,
                                     grpc::ByteBuffer* answer) override;

 private:
  Status Describe(const v1::GetModelRequest& message, v1::GetModelResponse* response) const;

  ServedModels* const served_;
  const ServerOptions options_;
  const PredictHandler handler_;
  OpenCalls calls_;
  PredictStreams streams_;
};

}  // namespace embershard::rpc

#endif  // EMBERSHARD_GRPC_EMBERSHARD_PREDICTOR_SERVICE_H_
