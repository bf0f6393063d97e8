// A request of Triton's: its contents, as views over its memory, and its answer.

#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "batching/request.h"
#include "tensors/request_parameters.h"
#include "tensors/tensor_specs.h"
#include "triton/api.h"
#include "triton/triton_model.h"

namespace embershard::triton {

// Reads a request without copying values. Valid until the request is released.
class RequestReader {
 public:
  Status ReadShapes(TRITONBACKEND_Request* request);

  // Also reads the inputs' bytes, buffer by buffer, and the names of wanted outputs. Refuses device
  // memory, sequences of requests and negative timeouts.
  Status Read(TRITONBACKEND_Request* request);

  std::span<const InputTensor> inputs() const { return inputs_; }
  std::span<const std::string_view> outputs() const { return outputs_; }
  const RequestParameters& parameters() const { return parameters_; }

 private:
  struct Input {
    TRITONBACKEND_Input* handle = nullptr;
    uint32_t buffers = 0;
  };

  Status ReadInputs(TRITONBACKEND_Request* request);
  Status ReadBuffers();
  Status ReadParameters(TRITONBACKEND_Request* request);
  Status ReadOutputs(TRITONBACKEND_Request* request);
  // Checks parameters that Triton removes from requests and handles itself, or ignores.
  static Status CheckTakenParameters(TRITONBACKEND_Request* request);

  std::vector<InputTensor> inputs_;
  std::vector<Input> handles_;             // One per input.
  std::vector<std::string_view> buffers_;  // Buffers of all inputs, one input after another.
  std::vector<std::string_view> outputs_;
  RequestParameters parameters_;
};

// Nanoseconds of the steady clock.
struct BatchMoments {
  uint64_t begun = 0;
  uint64_t ran = 0;
  uint64_t done = 0;
};

uint64_t SteadyNanoseconds();

Status ClientLeft();

class TritonRequest {
 public:
  // Answer() releases `request`.
  TritonRequest(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request,
                const TritonModel* model)
      : instance_(instance), request_(request), model_(model) {}

  // The views over the tensors are valid until the request is answered.
  Status Read(Request* request);

  bool IsCancelled() const;

  bool answered() const { return request_ == nullptr; }

  // Sends the response, or an error if `status` is not ok, reports the request to Triton's
  // statistics, and releases it. Further calls do nothing. Never throws.
  void Answer(const Status& status, const Response& response, const BatchMoments& moments);

 private:
  // Returns an error if `status` was sent instead of `response`, or if sending failed.
  Status Send(const Status& status, const Response& response);
  Status Fill(TRITONBACKEND_Response* made, const Response& response) const;

  TRITONBACKEND_ModelInstance* const instance_;
  TRITONBACKEND_Request* request_;  // Null after it was released.
  const TritonModel* const model_;
  RequestReader reader_;
  uint32_t num_examples_ = 0;
  bool is_batch_of_one_ = false;
};

}  // namespace embershard::triton
