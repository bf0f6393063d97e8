#include "grpc/embershard/predictor_service.h"

#include <memory>
#include <utility>

#include "grpc/embershard/responses.h"
#include "grpc/predict/answer_now.h"
#include "grpc/predict/predict_call.h"

namespace embershard::rpc {
namespace {

std::unique_ptr<WireMessages> MakePredictMessages() { return std::make_unique<PredictMessages>(); }

}  // namespace

PredictorService::PredictorService(ServedModels* served, Recorder* recorder,
                                   const ServerOptions& options, OpenConnections* connections)
    : served_(served),
      options_(options),
      handler_(served, recorder, options.default_timeout, connections),
      streams_(&handler_, MakePredictMessages, StreamOptionsOf(options)) {}

grpc::ServerUnaryReactor* PredictorService::Predict(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* message,
                                                    grpc::ByteBuffer* answer) {
  return PredictCall::Start(&handler_, &calls_, options_.retry_pushback, context,
                            std::make_shared<PredictMessages>(), message, answer);
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* PredictorService::PredictStream(
    grpc::CallbackServerContext* context) {
  return streams_.Open(context);
}

grpc::ServerUnaryReactor* PredictorService::GetModel(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* message,
                                                     grpc::ByteBuffer* answer) {
  return AnswerNow<v1::GetModelRequest, v1::GetModelResponse>(
      context, message, answer,
      [this](const auto& request, auto* response) { return Describe(request, response); });
}

Status PredictorService::Describe(const v1::GetModelRequest& message,
                                  v1::GetModelResponse* response) const {
  const auto engine = served_->Find(message.model(), message.version(), message.label());
  if (!engine.ok()) return engine.status();
  DescribeModel(**engine, static_cast<uint64_t>(options_.max_message_bytes), response);
  return {};
}

void PredictorService::RefuseNew() {
  calls_.RefuseNew();
  streams_.Close();
}

void PredictorService::WaitUntilDone(Clock::time_point deadline) {
  streams_.WaitUntilEnded(deadline);
  calls_.WaitUntilIdle(deadline);
}

}  // namespace embershard::rpc
