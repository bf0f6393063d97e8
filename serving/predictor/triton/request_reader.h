// What a request of Triton's says, as views over its memory.

#ifndef EMBERSHARD_TRITON_REQUEST_READER_H_
#define EMBERSHARD_TRITON_REQUEST_READER_H_

#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tensors/request_parameters.h"
#include "tensors/tensor.h"
#include "triton/api.h"

namespace embershard {

// Lies over the request, and copies none of its values: to be used until that is released.
class RequestReader {
 public:
  // Names, types and shapes of the inputs, and the parameters.
  Status ReadShapes(TRITONBACKEND_Request* request);

  // The same, with the inputs' bytes, in as many chunks as there are buffers, and the names of the
  // outputs that are wanted. Refuses memory of a device.
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

  std::vector<InputTensor> inputs_;
  std::vector<Input> handles_;            // One for each.
  std::vector<std::string_view> pieces_;  // Of all inputs, concatenated.
  std::vector<std::string_view> outputs_;
  RequestParameters parameters_;
};

}  // namespace embershard

#endif  // EMBERSHARD_TRITON_REQUEST_READER_H_
