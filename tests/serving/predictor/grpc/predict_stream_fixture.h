// Helpers for the tests of streams: requests with ids, and a client's end of a stream.

#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "grpc/serving_fixture.h"

namespace embershard::rpc {

inline v1::PredictRequest Asking(const std::string& id) {
  v1::PredictRequest message = PackedMessage();
  message.set_request_id(id);
  return message;
}

// A request that is refused at once.
inline v1::PredictRequest BadlyAsking(const std::string& id) {
  v1::PredictRequest message = Asking(id);
  message.set_num_examples(0);
  return message;
}

inline void ExpectGoodFor(const std::string& id, const v1::PredictResponse& response) {
  EXPECT_EQ(response.request_id(), id);
  EXPECT_FALSE(response.has_failure()) << response.failure().message();
  ExpectGood(grpc::Status::OK, response);
}

inline void ExpectFailure(const std::string& id, grpc::StatusCode code,
                          const v1::PredictResponse& response) {
  EXPECT_EQ(response.request_id(), id);
  EXPECT_EQ(response.failure().code(), code) << response.failure().message();
  EXPECT_EQ(response.outputs_size(), 0);
}

// A client's end. All of it ends at a deadline, so no test hangs.
class Stream {
 public:
  explicit Stream(v1::Predictor::Stub* stub) {
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(120));
    call_ = stub->PredictStream(&context_);
  }
  ~Stream() {
    if (!finished_) {
      context_.TryCancel();
      Finish();
    }
  }

  bool Write(const v1::PredictRequest& message) { return call_->Write(message); }
  void HalfClose() { call_->WritesDone(); }
  void Cancel() { context_.TryCancel(); }

  // The next answer, or an empty one at the end of the stream.
  v1::PredictResponse Read() {
    v1::PredictResponse response;
    EXPECT_TRUE(call_->Read(&response));
    return response;
  }

  // How it ended, when all answers have been read.
  grpc::Status Finish() {
    v1::PredictResponse more;
    while (call_->Read(&more)) ++unread_;
    finished_ = true;
    return call_->Finish();
  }
  // REQUIRES: Finish() has returned.
  int unread() const { return unread_; }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::PredictRequest, v1::PredictResponse>> call_;
  bool finished_ = false;
  int unread_ = 0;
};

inline size_t Queued(Serving* serving) { return serving->engine()->Snapshot().queued.requests; }

}  // namespace embershard::rpc
