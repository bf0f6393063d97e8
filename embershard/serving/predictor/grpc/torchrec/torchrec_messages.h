// Converts the messages of proto/torchrec/predictor.proto; see docs/protocols.md.

#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "grpc/predict/wire_messages.h"
#include "torchrec/predictor.pb.h"

namespace embershard::rpc {

class TorchRecMessages final : public WireMessages {
 public:
  Result<std::shared_ptr<Engine>> Find(const ServedModels& served) const override;
  Status Parse(const Engine& engine, Request* request) override;
  void Fill(const Engine& engine, const Response& answer) override;
  uint32_t examples() const override {
    return static_cast<uint32_t>(std::max(0, messages_.asked().batch_size()));
  }
  uint64_t bytes_received() const override { return messages_.received_bytes(); }
  uint64_t bytes_sent() const override { return messages_.answer().ByteSizeLong(); }
  Status Read(grpc::ByteBuffer* bytes) override { return messages_.Read(bytes); }
  grpc::ByteBuffer Write() const override { return WriteMessage(messages_.answer()); }

 private:
  ArenaMessages<predictor::PredictionRequest, predictor::PredictionResponse> messages_;
  std::vector<int64_t> ids_;  // The request's ids, widened to 64 bits.
};

}  // namespace embershard::rpc
