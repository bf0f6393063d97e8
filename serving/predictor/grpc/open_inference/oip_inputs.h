// The inputs of a ModelInferRequest, as tensors.

#ifndef EMBERSHARD_GRPC_OPEN_INFERENCE_OIP_INPUTS_H_
#define EMBERSHARD_GRPC_OPEN_INFERENCE_OIP_INPUTS_H_

#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "inference/open_inference.pb.h"
#include "tensors/tensor.h"

namespace embershard::rpc {

// Lies over the message, and copies none of its values.
class OipInputs {
 public:
  // Takes the bytes of raw_input_contents, or of the contents that go with each datatype. Refuses
  // both in one request, and what leaves open whose bytes are whose.
  Status Read(const inference::ModelInferRequest& message);

  std::span<const InputTensor> tensors() const { return tensors_; }

 private:
  std::vector<InputTensor> tensors_;
  std::vector<std::string_view> bytes_;  // One for each.
};

}  // namespace embershard::rpc

#endif  // EMBERSHARD_GRPC_OPEN_INFERENCE_OIP_INPUTS_H_
