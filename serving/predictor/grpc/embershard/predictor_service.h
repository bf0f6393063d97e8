// The service of proto/embershard/v1/predictor.proto over what is served.

#ifndef EMBERSHARD_GRPC_EMBERSHARD_PREDICTOR_SERVICE_H_
#define EMBERSHARD_GRPC_EMBERSHARD_PREDICTOR_SERVICE_H_

#include "grpc/predict/predict_service.h"

namespace embershard::rpc {

// On a stream, what is no PredictRequest fails alone.
class PredictorService final : public PredictService {
 public:
  // As PredictService.
  PredictorService(ServedModels* served, Recorder* recorder, const ServerOptions& options,
                   OpenConnections* connections);
};

}  // namespace embershard::rpc

#endif  // EMBERSHARD_GRPC_EMBERSHARD_PREDICTOR_SERVICE_H_
