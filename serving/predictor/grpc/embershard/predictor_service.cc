#include "grpc/embershard/predictor_service.h"

#include <cstdint>
#include <memory>

#include "grpc/embershard/predict_messages.h"
#include "grpc/embershard/responses.h"

namespace embershard::rpc {
namespace {

std::shared_ptr<WireMessages> MakePredictMessages() { return std::make_shared<PredictMessages>(); }

}  // namespace

PredictorService::PredictorService(ServedModels* served, Recorder* recorder,
                                   const ServerOptions& options, OpenConnections* connections)
    : PredictService("embershard.v1.Predictor", served, recorder, options, connections) {
  AddPredict("Predict", MakePredictMessages);
  AddPredictStream("PredictStream", MakePredictMessages);
  AddQuestion<v1::GetModelRequest, v1::GetModelResponse>(
      "GetModel", [this](const auto& request, auto* response) {
        const auto engine = served_->Find(request.model(), request.version(), request.label());
        if (!engine.ok()) return engine.status();
        DescribeModel(**engine, static_cast<uint64_t>(options_.max_message_bytes), response);
        return Status();
      });
}

}  // namespace embershard::rpc
