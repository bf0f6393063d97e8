#include "triton/triton_request.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "base/clock.h"
#include "triton/errors.h"

namespace embershard::triton {
namespace {

Status AddOutput(TRITONBACKEND_Response* made, const OutputTensor& tensor) {
  TRITONBACKEND_Output* output = nullptr;
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_ResponseOutput(
      made, &output, std::string(tensor.name).c_str(), TRITONSERVER_TYPE_FP32, tensor.shape.data(),
      static_cast<uint32_t>(tensor.shape.size()))));
  void* buffer = nullptr;
  TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
  int64_t memory_id = 0;
  RETURN_IF_ERROR(FromTriton(
      TRITONBACKEND_OutputBuffer(output, &buffer, tensor.bytes.size(), &memory, &memory_id)));
  if (memory == TRITONSERVER_MEMORY_GPU) {
    return Internal("output '", tensor.name, "': expected memory of the host, got a device's");
  }
  if (!tensor.bytes.empty()) std::memcpy(buffer, tensor.bytes.data(), tensor.bytes.size());
  return {};
}

ParameterValue ValueOf(TRITONSERVER_ParameterType type, const void* value) {
  switch (type) {
    case TRITONSERVER_PARAMETER_STRING:
      return std::string_view(static_cast<const char*>(value));
    case TRITONSERVER_PARAMETER_INT:
      return *static_cast<const int64_t*>(value);
    case TRITONSERVER_PARAMETER_BOOL:
      return *static_cast<const bool*>(value);
    case TRITONSERVER_PARAMETER_DOUBLE:
      return *static_cast<const double*>(value);
    case TRITONSERVER_PARAMETER_BYTES:
      break;
  }
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
  RETURN_IF_ERROR(reader_.Read(request_));
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
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_ResponseNew(&made, request_)));
  Status said = status;
  if (said.ok()) {
    try {
      said = Fill(made, response);
    } catch (const std::bad_alloc&) {
      said = OutOfMemory();
    }
  }
  const std::unique_ptr<TRITONSERVER_Error, DeleteError> error(ToTriton(said));
  const Status sent = FromTriton(
      TRITONBACKEND_ResponseSend(made, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error.get()));
  return said.ok() ? sent : said;
}

Status TritonRequest::Fill(TRITONBACKEND_Response* made, const Response& response) const {
  for (const ResponseOutput& output : response.outputs) {
    RETURN_IF_ERROR(
        AddOutput(made, model_->tensors().Answer(output, num_examples_, is_batch_of_one_)));
  }
  for (const UnknownIdCount& unknown : response.unknown_ids) {
    const std::string name = "unknown_ids." + model_->schema().sparse[unknown.sparse_input].name;
    RETURN_IF_ERROR(FromTriton(TRITONBACKEND_ResponseSetIntParameter(
        made, name.c_str(), static_cast<int64_t>(unknown.count))));
  }
  return {};
}

Status RequestReader::ReadShapes(TRITONBACKEND_Request* request) {
  RETURN_IF_ERROR(ReadInputs(request));
  return ReadParameters(request);
}

Status RequestReader::Read(TRITONBACKEND_Request* request) {
  RETURN_IF_ERROR(ReadShapes(request));
  RETURN_IF_ERROR(CheckTakenParameters(request));
  RETURN_IF_ERROR(ReadBuffers());
  return ReadOutputs(request);
}

Status RequestReader::ReadInputs(TRITONBACKEND_Request* request) {
  uint32_t count = 0;
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_RequestInputCount(request, &count)));
  inputs_.reserve(count);
  handles_.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    Input input;
    RETURN_IF_ERROR(FromTriton(TRITONBACKEND_RequestInputByIndex(request, i, &input.handle)));
    const char* name = "";
    TRITONSERVER_DataType datatype = TRITONSERVER_TYPE_INVALID;
    const int64_t* shape = nullptr;
    uint32_t dims = 0;
    uint64_t bytes = 0;
    RETURN_IF_ERROR(FromTriton(TRITONBACKEND_InputProperties(input.handle, &name, &datatype, &shape,
                                                             &dims, &bytes, &input.buffers)));
    inputs_.push_back({.name = name,
                       .datatype = TRITONSERVER_DataTypeString(datatype),
                       .shape = {shape, dims},
                       .buffers = {}});
    handles_.push_back(input);
  }
  return {};
}

Status RequestReader::ReadBuffers() {
  size_t buffers = 0;
  for (const Input& input : handles_) buffers += input.buffers;
  buffers_.reserve(buffers);  // Never grows, because spans point into it.
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const size_t first = buffers_.size();
    for (uint32_t buffer = 0; buffer < handles_[i].buffers; ++buffer) {
      const void* data = nullptr;
      uint64_t bytes = 0;
      TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
      int64_t memory_id = 0;
      RETURN_IF_ERROR(FromTriton(TRITONBACKEND_InputBuffer(handles_[i].handle, buffer, &data,
                                                           &bytes, &memory, &memory_id)));
      if (memory == TRITONSERVER_MEMORY_GPU) {
        return InvalidArgument("tensor '", inputs_[i].name,
                               "': expected memory of the host, got a device's");
      }
      buffers_.emplace_back(static_cast<const char*>(data), bytes);
    }
    inputs_[i].buffers = std::span<const std::string_view>(buffers_).subspan(first);
  }
  return {};
}

Status RequestReader::ReadParameters(TRITONBACKEND_Request* request) {
  uint32_t count = 0;
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_RequestParameterCount(request, &count)));
  for (uint32_t i = 0; i < count; ++i) {
    const char* key = "";
    TRITONSERVER_ParameterType type = TRITONSERVER_PARAMETER_BYTES;
    const void* value = nullptr;
    RETURN_IF_ERROR(FromTriton(TRITONBACKEND_RequestParameter(request, i, &key, &type, &value)));
    RETURN_IF_ERROR(ReadParameter(key, ValueOf(type, value), &parameters_));
  }
  return {};
}

Status RequestReader::CheckTakenParameters(TRITONBACKEND_Request* request) {
  RequestParameters none;
  uint64_t sequence = 0;
  if (!FromTriton(TRITONBACKEND_RequestCorrelationId(request, &sequence)).ok() || sequence != 0) {
    return NoSequences("sequence_id");
  }
  uint32_t flags = 0;
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_RequestFlags(request, &flags)));
  RETURN_IF_ERROR(ReadParameter("sequence_start",
                                (flags & TRITONSERVER_REQUEST_FLAG_SEQUENCE_START) != 0, &none));
  RETURN_IF_ERROR(
      ReadParameter("sequence_end", (flags & TRITONSERVER_REQUEST_FLAG_SEQUENCE_END) != 0, &none));
  uint64_t timeout = 0;  // Triton converts negative values to very large ones.
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_InferenceRequestTimeoutMicroseconds(request, &timeout)));
  return ReadParameter("timeout", static_cast<int64_t>(timeout), &none);
}

Status RequestReader::ReadOutputs(TRITONBACKEND_Request* request) {
  uint32_t count = 0;
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_RequestOutputCount(request, &count)));
  outputs_.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    const char* name = "";
    RETURN_IF_ERROR(FromTriton(TRITONBACKEND_RequestOutputName(request, i, &name)));
    outputs_.emplace_back(name);
  }
  return {};
}

}  // namespace embershard::triton
