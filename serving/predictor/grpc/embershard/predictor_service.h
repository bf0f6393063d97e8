// The service of proto/embershard/v1/predictor.proto over what is served.

#pragma once

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
