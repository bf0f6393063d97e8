// The messages of proto/inference/open_inference.proto, as a request and its answer.

#ifndef EMBERSHARD_GRPC_OIP_MESSAGES_H_
#define EMBERSHARD_GRPC_OIP_MESSAGES_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>

#include "grpc/wire_messages.h"
#include "inference/open_inference.pb.h"

namespace embershard {

// What a request or a question names. `version`: a number in decimal digits, a label, or nothing.
Result<std::shared_ptr<Engine>> FindOip(const ServedModels& served, std::string_view model,
                                        std::string_view version);

class OipMessages final : public WireMessages {
 public:
  using Asked = inference::ModelInferRequest;
  using Answer = inference::ModelInferResponse;

  Asked* asked() { return &asked_; }
  Answer* answer() { return answer_.mutable_infer_response(); }

  Result<std::shared_ptr<Engine>> Find(const ServedModels& served) const override;
  std::chrono::nanoseconds timeout() const override;
  Status Parse(const Engine& engine, Request* request) override;
  void Fill(const Engine& engine, const Response& answer) override;
  std::string_view id() const override { return asked_.id(); }
  uint32_t examples() const override { return examples_; }
  Priority priority() const override { return priority_; }
  uint64_t bytes_received() const override { return asked_.ByteSizeLong(); }
  uint64_t bytes_sent() const override { return answer_.infer_response().ByteSizeLong(); }
  void Record(Recorder*, const Status&, std::chrono::system_clock::time_point) const override {}
  bool Read(grpc::ByteBuffer* bytes) override;
  const char* kind() const override { return "ModelInferRequest"; }
  void Fail(const grpc::Status& status, std::chrono::milliseconds pushback) override;
  grpc::ByteBuffer Write() const override { return WriteMessage(answer_); }

 private:
  Asked asked_;
  inference::ModelStreamInferResponse answer_;
  bool on_stream_ = false;
  uint32_t examples_ = 0;  // Once parsed, as the priority.
  Priority priority_ = Priority::kInteractive;
};

}  // namespace embershard

#endif  // EMBERSHARD_GRPC_OIP_MESSAGES_H_
