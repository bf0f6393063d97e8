#include "grpc/torchrec_service.h"

#include "grpc/predict_call.h"

namespace embershard {

TorchRecService::TorchRecService(ServedModels* served, const GrpcServerOptions& options)
    : options_(options), handler_(served, /*recorder=*/nullptr, options.default_timeout) {
  SetMessageAllocatorFor_Predict(&messages_);
}

grpc::ServerUnaryReactor* TorchRecService::Predict(grpc::CallbackServerContext* context,
                                                   const predictor::PredictionRequest*,
                                                   predictor::PredictionResponse*) {
  return PredictCall::Start(&handler_, &calls_, options_.retry_pushback, context,
                            KeptMessages<TorchRecMessages>::Of(context));
}

}  // namespace embershard
