#include "grpc/embershard/serialized.h"

#include <limits>
#include <memory>
#include <utility>

#include "embershard/v1/predictor.pb.h"
#include "grpc/embershard/request_parser.h"
#include "grpc/embershard/responses.h"

namespace embershard::rpc {
namespace {

// A request made of views over a message. Its answer keeps the message alive and ends in
// `answer`.
Result<std::unique_ptr<Request>> ParseSerialized(const ServedModels& served, std::string_view bytes,
                                                 Result<std::string>* answer) {
  const auto message = std::make_shared<v1::PredictRequest>();
  const bool fits = bytes.size() <= static_cast<size_t>(std::numeric_limits<int>::max());
  if (!fits || !message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return InvalidArgument("expected a PredictRequest message, got " +
                           std::to_string(bytes.size()) + " bytes that are none");
  }
  const auto engine = served.Find(message->model(), message->version(), message->label());
  if (!engine.ok()) return engine.status();
  auto request = std::make_unique<Request>();
  const RequestParser parser(engine->get());
  if (Status status = parser.Parse(*message, request.get()); !status.ok()) return status;
  request->arrival = Clock::now();
  request->answer = [&manifest = (*engine)->manifest(), message, answer](Status status,
                                                                         Response response) {
    if (!status.ok()) {
      *answer = std::move(status);
      return;
    }
    v1::PredictResponse filled;
    FillResponse(manifest, *message, response, &filled);
    *answer = filled.SerializeAsString();
  };
  return request;
}

}  // namespace

std::vector<Result<std::string>> PredictSerialized(const ServedModels& served,
                                                   std::span<const std::string_view> requests) {
  SilenceProtobuf();
  std::vector<Result<std::string>> answers(requests.size(), Internal("not answered"));
  std::vector<std::unique_ptr<Request>> parsed;
  for (size_t i = 0; i < requests.size(); ++i) {
    Result<std::unique_ptr<Request>> request = ParseSerialized(served, requests[i], &answers[i]);
    if (request.ok()) {
      parsed.push_back(std::move(*request));
    } else {
      answers[i] = request.status();
    }
  }
  served.Engines().front()->PredictMerged(std::move(parsed));
  return answers;
}

std::string GetModelSerialized(const Engine& engine) {
  v1::GetModelResponse message;
  // Nothing is sent, so protobuf's own limit is the only one.
  DescribeModel(engine, std::numeric_limits<int32_t>::max(), &message);
  return message.SerializeAsString();
}

}  // namespace embershard::rpc
