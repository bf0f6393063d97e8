// The messages of proto/embershard/v1/predictor.proto, as a request and its answer.

#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>

#include "embershard/v1/predictor.pb.h"
#include "grpc/predict/message_parser.h"
#include "grpc/predict/wire_messages.h"

namespace embershard::rpc {

class PredictMessages final : public WireMessages {
 public:
  Result<std::shared_ptr<Engine>> Find(const ServedModels& served) const override;
  std::chrono::nanoseconds timeout() const override;
  Status Parse(const Engine& engine, Request* request) override;
  void Fill(const Engine& engine, const Response& answer) override;
  std::string_view id() const override { return asked_.request_id(); }
  uint32_t examples() const override { return asked_.num_examples(); }
  Priority priority() const override {
    return asked_.priority() == v1::PRIORITY_BACKGROUND ? Priority::kBackground
                                                        : Priority::kInteractive;
  }
  uint64_t bytes_received() const override { return received_bytes_; }
  uint64_t bytes_sent() const override { return answer_.ByteSizeLong(); }
  void Record(Recorder* recorder, const Status& status,
              std::chrono::system_clock::time_point arrival) const override;
  Status Read(grpc::ByteBuffer* bytes) override {
    received_bytes_ = bytes->Length();
    return ParseMessage(bytes, &asked_);
  }
  void Fail(const grpc::Status& status, std::chrono::milliseconds pushback) override;
  grpc::ByteBuffer Write() const override { return WriteMessage(answer_); }

 private:
  v1::PredictRequest asked_;
  v1::PredictResponse answer_;
  uint64_t received_bytes_ = 0;
};

}  // namespace embershard::rpc
