// Converts the messages of proto/embershard/v1/predictor.proto.

#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/text.h"
#include "embershard/v1/predictor.pb.h"
#include "grpc/predict/wire_messages.h"

namespace embershard::rpc {

// Request ids are echoed in answers, so their size is limited.
inline constexpr size_t kRequestIdBytesMax = 1024;

// Fills num_examples, priority, the wanted outputs, held_bytes and the views over the bytes of
// `message`, which must outlive them. Fails for unknown input names, another schema's fingerprint,
// both forms of an input in one request, and bytes that are not whole values. CheckRequest() checks
// everything else.
Status ParseRequest(const Engine& engine, const v1::PredictRequest& message, Request* request);

void FillResponse(const Manifest& manifest, const v1::PredictRequest& request,
                  const Response& response, v1::PredictResponse* message);

void DescribeModel(const Manifest& manifest, const Limits& limits, uint64_t max_message_bytes,
                   v1::GetModelResponse* message);

class PredictMessages final : public WireMessages {
 public:
  Result<std::shared_ptr<Engine>> Find(const ServedModels& served) const override {
    return served.Route(asked_.model(), asked_.version(), asked_.label(), asked_.traffic_key());
  }

  std::chrono::nanoseconds timeout() const override {
    return std::chrono::milliseconds(asked_.timeout_ms());
  }

  Status Parse(const Engine& engine, Request* request) override {
    return ParseRequest(engine, asked_, request);
  }

  void Fill(const Engine& engine, const Response& answer) override {
    FillResponse(engine.manifest(), asked_, answer, &answer_);
  }

  std::string_view id() const override { return asked_.request_id(); }
  uint32_t examples() const override { return asked_.num_examples(); }
  Priority priority() const override {
    return asked_.priority() == v1::PRIORITY_BACKGROUND ? Priority::kBackground
                                                        : Priority::kInteractive;
  }
  uint64_t bytes_received() const override { return received_bytes_; }
  uint64_t bytes_sent() const override { return answer_.ByteSizeLong(); }
  void Record(Recorder* recorder, const Status& status,
              std::chrono::system_clock::time_point arrival) const override {
    recorder->Offer(asked_, status, answer_, arrival);
  }

  Status Read(grpc::ByteBuffer* bytes) override {
    received_bytes_ = bytes->Length();
    return ParseMessage(bytes, &asked_);
  }
  void Fail(const grpc::Status& status, std::chrono::milliseconds pushback) override {
    answer_.Clear();
    answer_.set_request_id(std::string(CutUtf8(asked_.request_id(), kRequestIdBytesMax)));
    v1::Failure* const failure = answer_.mutable_failure();
    failure->set_code(status.error_code());
    failure->set_message(status.error_message());
    failure->set_retry_pushback_ms(static_cast<uint32_t>(pushback.count()));
  }

  grpc::ByteBuffer Write() const override { return WriteMessage(answer_); }

 private:
  v1::PredictRequest asked_;
  v1::PredictResponse answer_;
  uint64_t received_bytes_ = 0;
};

}  // namespace embershard::rpc
