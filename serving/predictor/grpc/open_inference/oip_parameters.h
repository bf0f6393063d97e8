// What a ModelInferRequest says beside its tensors.

#ifndef EMBERSHARD_GRPC_OPEN_INFERENCE_OIP_PARAMETERS_H_
#define EMBERSHARD_GRPC_OPEN_INFERENCE_OIP_PARAMETERS_H_

#include <google/protobuf/map.h>

#include <chrono>
#include <string>
#include <string_view>

#include "base/status.h"
#include "inference/open_inference.pb.h"
#include "tensors/request_parameters.h"

namespace embershard::rpc {

using OipParameterMap = google::protobuf::Map<std::string, inference::InferParameter>;

// Of a request. Refuses what it does not know (kInvalidArgument).
Result<RequestParameters> ReadParameters(const OipParameterMap& parameters);

// "timeout", microseconds. 0: none, or one that ReadParameters() refuses.
std::chrono::nanoseconds TimeoutOf(const OipParameterMap& parameters);

// "traffic_key". Empty: none, or one that ReadParameters() refuses. Lies in `parameters`.
std::string_view TrafficKeyOf(const OipParameterMap& parameters);

// Of an input or an output, which takes none: shared memory and classification are not served.
// `what`: "tensor" or "output".
Status CheckNone(const char* what, const std::string& name, const OipParameterMap& parameters);

}  // namespace embershard::rpc

#endif  // EMBERSHARD_GRPC_OPEN_INFERENCE_OIP_PARAMETERS_H_
