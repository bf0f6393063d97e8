#include "grpc/embershard/predict_messages.h"

#include <string>

#include "base/text.h"
#include "grpc/embershard/request_parser.h"
#include "grpc/embershard/responses.h"

namespace embershard::rpc {

Result<std::shared_ptr<Engine>> PredictMessages::Find(const ServedModels& served) const {
  return served.Route(asked_.model(), asked_.version(), asked_.label(), asked_.traffic_key());
}

std::chrono::nanoseconds PredictMessages::timeout() const {
  return std::chrono::milliseconds(asked_.timeout_ms());
}

Status PredictMessages::Parse(const Engine& engine, Request* request) {
  return ParseRequest(engine, asked_, request);
}

void PredictMessages::Fill(const Engine& engine, const Response& answer) {
  FillResponse(engine.manifest(), asked_, answer, &answer_);
}

void PredictMessages::Record(Recorder* recorder, const Status& status,
                             std::chrono::system_clock::time_point arrival) const {
  recorder->Offer(asked_, status, answer_, arrival);
}

void PredictMessages::Fail(const grpc::Status& status, std::chrono::milliseconds pushback) {
  answer_.Clear();
  answer_.set_request_id(std::string(CutUtf8(asked_.request_id(), kRequestIdBytesMax)));
  v1::Failure* const failure = answer_.mutable_failure();
  failure->set_code(status.error_code());
  failure->set_message(status.error_message());
  failure->set_retry_pushback_ms(static_cast<uint32_t>(pushback.count()));
}

}  // namespace embershard::rpc
