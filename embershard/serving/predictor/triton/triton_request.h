// One request of Triton's: what it says, as views over its memory, and its one answer.

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

// Lies over the request, and copies none of its values: to be used until that is released.
class RequestReader {
 public:
  // Names, types and shapes of the inputs, and the parameters.
  Status ReadShapes(TRITONBACKEND_Request* request);

  // The same, with the inputs' bytes, in as many chunks as there are buffers, and the names of the
  // outputs that are wanted. Refuses memory of a device, sequences of requests and a negative
  // timeout.
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
  // Parameters that Triton takes out of a request and heeds by itself, or not at all.
  static Status CheckTakenParameters(TRITONBACKEND_Request* request);

  std::vector<InputTensor> inputs_;
  std::vector<Input> handles_;             // One for each.
  std::vector<std::string_view> buffers_;  // Of all inputs, concatenated.
  std::vector<std::string_view> outputs_;
  RequestParameters parameters_;
};

// When the batch of a request began to be prepared, and when it ran: nanoseconds of the steady
// clock.
struct BatchMoments {
  uint64_t begun = 0;
  uint64_t ran = 0;
  uint64_t done = 0;
};

// Now, on that clock.
uint64_t SteadyNanoseconds();

// The status of a request that its client cancelled.
Status ClientLeft();

class TritonRequest {
 public:
  // Takes `request`, which Answer() releases.
  TritonRequest(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request,
                const TritonModel* model)
      : instance_(instance), request_(request), model_(model) {}

  // Fills what the tensors say; the views lie over the request's memory, until it is answered.
  Status Read(Request* request);

  // Whether nobody waits for the answer any more.
  bool IsCancelled() const;

  bool answered() const { return request_ == nullptr; }

  // Sends the one response, which is an error where `status` is not ok, reports the request to the
  // statistics and releases it. Does nothing when called again. Never throws.
  void Answer(const Status& status, const Response& response, const BatchMoments& moments);

 private:
  // Sends `response`, or `status` where that is not ok. Not ok: that went out, or nothing did.
  Status Send(const Status& status, const Response& response);
  Status Fill(TRITONBACKEND_Response* made, const Response& response) const;

  TRITONBACKEND_ModelInstance* const instance_;
  TRITONBACKEND_Request* request_;  // Null: it has been released.
  const TritonModel* const model_;
  RequestReader reader_;
  uint32_t num_examples_ = 0;
  bool is_batch_of_one_ = false;
};

}  // namespace embershard::triton
