#include "grpc/torchrec/torchrec_service.h"

#include <memory>

#include "grpc/predict/predict_call.h"

namespace embershard::rpc {

TorchRecService::TorchRecService(ServedModels* served, const ServerOptions& options,
                                 OpenConnections* connections)
    : options_(options),
      handler_(served, /*recorder=*/nullptr, options.default_timeout, connections) {}

grpc::ServerUnaryReactor* TorchRecService::Predict(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* message,
                                                   grpc::ByteBuffer* answer) {
  return PredictCall::Start(&handler_, &calls_, options_.retry_pushback, context,
                            std::make_shared<TorchRecMessages>(), message, answer);
}

}  // namespace embershard::rpc
