#include "triton/triton_request.h"

#include <chrono>
#include <cstring>
#include <new>
#include <string>

#include "base/clock.h"
#include "triton/errors.h"

namespace embershard {
namespace {

// What a status says, deleted with this.
class ErrorOf {
 public:
  explicit ErrorOf(const Status& status) : error_(ToTriton(status)) {}
  ErrorOf(const ErrorOf&) = delete;
  ErrorOf& operator=(const ErrorOf&) = delete;
  ~ErrorOf() {
    if (error_ != nullptr) TRITONSERVER_ErrorDelete(error_);
  }

  TRITONSERVER_Error* get() const { return error_; }

 private:
  TRITONSERVER_Error* const error_;
};

Status AddOutput(TRITONBACKEND_Response* made, const OutputTensor& tensor) {
  TRITONBACKEND_Output* output = nullptr;
  Status status = FromTriton(TRITONBACKEND_ResponseOutput(
      made, &output, std::string(tensor.name).c_str(), TRITONSERVER_TYPE_FP32, tensor.shape.data(),
      static_cast<uint32_t>(tensor.shape.size())));
  if (!status.ok()) return status;
  void* buffer = nullptr;
  TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
  int64_t memory_id = 0;
  status = FromTriton(
      TRITONBACKEND_OutputBuffer(output, &buffer, tensor.bytes.size(), &memory, &memory_id));
  if (!status.ok()) return status;
  if (memory == TRITONSERVER_MEMORY_GPU) {
    return Internal("output '" + std::string(tensor.name) +
                    "': expected memory of the host, got a device's");
  }
  if (!tensor.bytes.empty()) std::memcpy(buffer, tensor.bytes.data(), tensor.bytes.size());
  return {};
}

}  // namespace

uint64_t SteadyNanoseconds() {
  const auto now = Clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

Status ClientLeft() {
  return {StatusCode::kDeadlineExceeded, "the client left while the request waited",
          StatusReason::kAbandoned};
}

Status TritonRequest::Read(Request* request) {
  if (Status status = reader_.Read(request_); !status.ok()) return status;
  Status status = model_->tensors().Parse({.inputs = reader_.inputs(),
                                           .outputs = reader_.outputs(),
                                           .num_examples = reader_.parameters().num_examples,
                                           .priority = reader_.parameters().priority},
                                          request);
  num_examples_ = request->num_examples;
  is_batch_of_one_ = model_->tensors().IsBatchOfOne(reader_.inputs());
  return status;
}

bool TritonRequest::IsCancelled() const {
  bool is_cancelled = false;
  LogFailure("TRITONBACKEND_RequestIsCancelled",
             TRITONBACKEND_RequestIsCancelled(request_, &is_cancelled));
  return is_cancelled;
}

void TritonRequest::Answer(const Status& status, const Response& response,
                           const BatchMoments& moments) {
  if (answered()) return;
  const Status sent = Send(status, response);
  if (status.ok() && !sent.ok()) {
    LogTriton(TRITONSERVER_LOG_ERROR, "an answer failed: " + sent.message());
  }
  LogFailure(
      "TRITONBACKEND_ModelInstanceReportStatistics",
      TRITONBACKEND_ModelInstanceReportStatistics(instance_, request_, sent.ok(), moments.begun,
                                                  moments.ran, moments.done, SteadyNanoseconds()));
  LogFailure("TRITONBACKEND_RequestRelease",
             TRITONBACKEND_RequestRelease(request_, TRITONSERVER_REQUEST_RELEASE_ALL));
  request_ = nullptr;
}

Status TritonRequest::Send(const Status& status, const Response& response) {
  TRITONBACKEND_Response* made = nullptr;
  if (Status failed = FromTriton(TRITONBACKEND_ResponseNew(&made, request_)); !failed.ok()) {
    return failed;
  }
  Status said = status;
  if (said.ok()) {
    try {
      said = Fill(made, response);
    } catch (const std::bad_alloc&) {
      said = OutOfMemory();
    }
  }
  const ErrorOf error(said);
  const Status sent = FromTriton(
      TRITONBACKEND_ResponseSend(made, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error.get()));
  return said.ok() ? sent : said;
}

Status TritonRequest::Fill(TRITONBACKEND_Response* made, const Response& response) const {
  for (const ResponseOutput& output : response.outputs) {
    Status status =
        AddOutput(made, model_->tensors().Answer(output, num_examples_, is_batch_of_one_));
    if (!status.ok()) return status;
  }
  for (const UnknownIdCount& unknown : response.unknown_ids) {
    const std::string name = "unknown_ids." + model_->schema().sparse[unknown.sparse_input].name;
    Status status = FromTriton(TRITONBACKEND_ResponseSetIntParameter(
        made, name.c_str(), static_cast<int64_t>(unknown.count)));
    if (!status.ok()) return status;
  }
  return {};
}

}  // namespace embershard
