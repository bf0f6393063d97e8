#include "grpc/predict/predict_service.h"

#include "grpc/predict/predict_call.h"

namespace embershard::rpc {

PredictService::PredictService(const std::string& name, ServedModels* served, Recorder* recorder,
                               const ServerOptions& options, OpenConnections* connections)
    : RawService(name),
      served_(served),
      options_(options),
      handler_(served, recorder, options.default_timeout, connections) {}

void PredictService::AddPredict(const std::string& method, MakeMessages make_messages) {
  AddUnary(method, [this, make_messages](Context* context, const Bytes* message, Bytes* answer) {
    return PredictCall::Start(&handler_, &calls_, options_.retry_pushback, context, make_messages(),
                              message, answer);
  });
}

void PredictService::AddPredictStream(const std::string& method, MakeMessages make_messages) {
  streams_ = std::make_unique<PredictStreams>(&handler_, make_messages, StreamOptionsOf(options_));
  AddStream(method, [this](Context* context) { return streams_->Open(context); });
}

void PredictService::RefuseNew() {
  calls_.RefuseNew();
  if (streams_ != nullptr) streams_->Close();
}

void PredictService::WaitUntilDone(Clock::time_point deadline) {
  if (streams_ != nullptr) streams_->WaitUntilEnded(deadline);
  calls_.WaitUntilIdle(deadline);
}

}  // namespace embershard::rpc
