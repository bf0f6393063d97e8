// Converts the messages of proto/inference/open_inference.proto.

#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "grpc/predict/wire_messages.h"
#include "inference/open_inference.pb.h"

namespace embershard::rpc {

// `version` is a decimal number, a label, or empty.
Result<std::shared_ptr<Engine>> FindOip(const ServedModels& served, std::string_view model,
                                        std::string_view version);

class OipMessages final : public WireMessages {
 public:
  // `on_stream`: on a stream, each answer is wrapped in another message.
  explicit OipMessages(bool on_stream) : on_stream_(on_stream) {}

  Result<std::shared_ptr<Engine>> Find(const ServedModels& served) const override;
  std::chrono::nanoseconds timeout() const override;
  Status Parse(const Engine& engine, Request* request) override;
  void Fill(const Engine& engine, const Response& answer) override;
  std::string_view id() const override { return messages_.asked().id(); }
  uint32_t examples() const override { return examples_; }
  Priority priority() const override { return priority_; }
  uint64_t bytes_received() const override { return messages_.received_bytes(); }
  uint64_t bytes_sent() const override {
    return messages_.answer().infer_response().ByteSizeLong();
  }
  Status Read(grpc::ByteBuffer* bytes) override { return messages_.Read(bytes); }
  void Fail(const grpc::Status& status, std::chrono::milliseconds pushback) override;
  grpc::ByteBuffer Write() const override {
    const inference::ModelStreamInferResponse& answer = messages_.answer();
    return on_stream_ ? WriteMessage(answer) : WriteMessage(answer.infer_response());
  }

 private:
  const bool on_stream_;
  ArenaMessages<inference::ModelInferRequest, inference::ModelStreamInferResponse> messages_;
  uint32_t examples_ = 0;  // Set by Parse(), like the priority.
  Priority priority_ = Priority::kInteractive;
  bool is_batch_of_one_ = false;  // Inputs and outputs have a leading dimension of 1.
};

void DescribeServer(inference::ServerMetadataResponse* message);

void DescribeModel(const Engine& engine, const ServedModels& served,
                   inference::ModelMetadataResponse* message);

// Model configuration. All inputs are optional, because each may be sent by name or packed.
// `default_timeout_us` applies to requests without a timeout.
void DescribeConfig(const Engine& engine, uint64_t default_timeout_us,
                    inference::ModelConfig* config);

// Counts calls in all protocols since the version's start.
void DescribeStatistics(const Engine& engine, inference::ModelStatistics* statistics);

// `only_ready`: lists only versions that are ready.
void DescribeRepository(const std::vector<ServedVersion>& versions, bool only_ready,
                        inference::RepositoryIndexResponse* message);

}  // namespace embershard::rpc
