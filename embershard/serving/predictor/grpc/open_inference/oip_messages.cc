#include "grpc/open_inference/oip_messages.h"

#include <google/protobuf/map.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

#include "tensors/request_parameters.h"
#include "tensors/tensor_map.h"

namespace embershard::rpc {
namespace {

using inference::InferParameter;
using Input = inference::ModelInferRequest::InferInputTensor;
using OipParameterMap = google::protobuf::Map<std::string, InferParameter>;

// A year, which fits into nanoseconds; a longer timeout makes no difference.
constexpr int64_t kTimeoutMaxUs = int64_t{365} * 24 * 3600 * 1'000'000;

ParameterValue ValueOf(const InferParameter& value) {
  if (value.has_bool_param()) return value.bool_param();
  if (value.has_int64_param()) return value.int64_param();
  if (value.has_uint64_param()) return value.uint64_param();
  if (value.has_double_param()) return value.double_param();
  if (value.has_string_param()) return std::string_view(value.string_param());
  return {};
}

// kInvalidArgument for an unknown parameter.
Result<RequestParameters> ReadParameters(const OipParameterMap& parameters) {
  RequestParameters read;
  for (const auto& [key, value] : parameters) {
    RETURN_IF_ERROR(ReadParameter(key, ValueOf(value), &read));
  }
  return read;
}

// The message has microseconds. 0: none, or a timeout that ReadParameters() refuses.
std::chrono::nanoseconds TimeoutOf(const OipParameterMap& parameters) {
  const auto parameter = parameters.find("timeout");
  if (parameter == parameters.end()) return {};
  const int64_t microseconds = WholeNumber(ValueOf(parameter->second)).value_or(0);
  return std::chrono::microseconds(std::clamp<int64_t>(microseconds, 0, kTimeoutMaxUs));
}

// A view into `parameters`. Empty: none, or an invalid key.
std::string_view TrafficKeyOf(const OipParameterMap& parameters) {
  const auto parameter = parameters.find("traffic_key");
  if (parameter == parameters.end() || !parameter->second.has_string_param()) return {};
  return parameter->second.string_param();
}

// Refuses all parameters of an input or output: shared memory and classification are not supported.
// `what`: "tensor" or "output".
Status CheckNone(const char* what, const std::string& name, const OipParameterMap& parameters) {
  if (parameters.empty()) return {};
  std::string first;  // The first by name, because the map has no order.
  for (const auto& [key, value] : parameters) {
    if (first.empty() || key < first) first = key;
  }
  return InvalidArgument(what, " '", name, "': parameter '", first,
                         "' is not served here, expected none");
}

// Marks a stream's answer as the last one for its request.
constexpr char kFinal[] = "triton_final_response";

Result<std::vector<std::string_view>> OutputNames(const inference::ModelInferRequest& request) {
  std::vector<std::string_view> names;
  for (const auto& output : request.outputs()) {
    RETURN_IF_ERROR(CheckNone("output", output.name(), output.parameters()));
    names.push_back(output.name());
  }
  return names;
}

template <class Values>
std::string_view BytesOf(const Values& values) {
  return {reinterpret_cast<const char*>(values.data()),
          static_cast<size_t>(values.size()) * sizeof(*values.data())};
}

// Counts the typed arrays that have values.
int CountKinds(const inference::InferTensorContents& contents) {
  int kinds = 0;
  for (const int size : {contents.bool_contents_size(), contents.int_contents_size(),
                         contents.int64_contents_size(), contents.uint_contents_size(),
                         contents.uint64_contents_size(), contents.fp32_contents_size(),
                         contents.fp64_contents_size(), contents.bytes_contents_size()}) {
    kinds += size > 0 ? 1 : 0;
  }
  return kinds;
}

// Empty for a datatype that no input uses; it is refused later.
Result<std::string_view> TypedBytes(const Input& input) {
  const inference::InferTensorContents& contents = input.contents();
  std::string_view bytes;
  const char* field;
  if (input.datatype() == kFp32) {
    field = "fp32_contents";
    bytes = BytesOf(contents.fp32_contents());
  } else if (input.datatype() == kInt64) {
    field = "int64_contents";
    bytes = BytesOf(contents.int64_contents());
  } else if (input.datatype() == kInt32) {
    field = "int_contents";
    bytes = BytesOf(contents.int_contents());
  } else {
    return bytes;
  }
  if (CountKinds(contents) > (bytes.empty() ? 0 : 1)) {
    return InvalidArgument("tensor '", input.name(), "': expected contents in ", field,
                           " alone for datatype '", input.datatype(), "'");
  }
  return bytes;
}

Status CheckRaw(const inference::ModelInferRequest& message) {
  if (message.raw_input_contents_size() != message.inputs_size()) {
    return InvalidArgument("raw_input_contents: expected ", message.inputs_size(),
                           ", one for each input, got ", message.raw_input_contents_size());
  }
  for (const Input& input : message.inputs()) {
    if (CountKinds(input.contents()) == 0) continue;
    return InvalidArgument("tensor '", input.name(),
                           "': expected contents or raw_input_contents, got both");
  }
  return {};
}

// Fills `tensors`, views over the message and `bytes`, from raw_input_contents or from the typed
// arrays. Fails for a request with both, and if the number of raw arrays does not match the inputs.
Status ReadInputs(const inference::ModelInferRequest& message, std::vector<InputTensor>* tensors,
                  std::vector<std::string_view>* bytes) {
  const bool raw = message.raw_input_contents_size() > 0;
  if (raw) RETURN_IF_ERROR(CheckRaw(message));
  bytes->resize(static_cast<size_t>(message.inputs_size()));
  for (int i = 0; i < message.inputs_size(); ++i) {
    const Input& input = message.inputs(i);
    RETURN_IF_ERROR(CheckNone("tensor", input.name(), input.parameters()));
    std::string_view& own = (*bytes)[static_cast<size_t>(i)];
    if (raw) {
      own = message.raw_input_contents(i);
    } else {
      ASSIGN_OR_RETURN(own, TypedBytes(input));
    }
    tensors->push_back({.name = input.name(),
                        .datatype = input.datatype(),
                        .shape = {input.shape().data(), static_cast<size_t>(input.shape_size())},
                        .buffers = {&own, 1}});
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<Engine>> FindOip(const ServedModels& served, std::string_view model,
                                        std::string_view version) {
  if (version.empty()) return served.Find(model, 0, "");
  int64_t number = 0;
  const char* const end = version.data() + version.size();
  const auto [rest, error] = std::from_chars(version.data(), end, number);
  const bool is_number = error == std::errc() && rest == end && number > 0;
  return is_number ? served.Find(model, number, "") : served.Find(model, 0, version);
}

Result<std::shared_ptr<Engine>> OipMessages::Find(const ServedModels& served) const {
  const inference::ModelInferRequest& request = messages_.asked();
  if (request.model_version().empty()) {
    return served.Route(request.model_name(), 0, "", TrafficKeyOf(request.parameters()));
  }
  return FindOip(served, request.model_name(), request.model_version());
}

std::chrono::nanoseconds OipMessages::timeout() const {
  return TimeoutOf(messages_.asked().parameters());
}

Status OipMessages::Parse(const Engine& engine, Request* request) {
  const inference::ModelInferRequest& message = messages_.asked();
  request->held_bytes = messages_.held_bytes();
  ASSIGN_OR_RETURN(const RequestParameters parameters, ReadParameters(message.parameters()));
  ASSIGN_OR_RETURN(const std::vector<std::string_view> outputs, OutputNames(message));
  std::vector<InputTensor> inputs;
  std::vector<std::string_view> bytes;
  RETURN_IF_ERROR(ReadInputs(message, &inputs, &bytes));
  is_batch_of_one_ = engine.tensors().IsBatchOfOne(inputs);
  const Status status = engine.tensors().Parse({.inputs = inputs,
                                                .outputs = outputs,
                                                .num_examples = parameters.num_examples,
                                                .priority = parameters.priority},
                                               request);
  examples_ = request->num_examples;
  priority_ = request->priority;
  return status;
}

void OipMessages::Fill(const Engine& engine, const Response& answer) {
  const Manifest& manifest = engine.manifest();
  inference::ModelInferResponse& filled = *messages_.answer().mutable_infer_response();
  filled.set_model_name(manifest.model);
  filled.set_model_version(std::to_string(manifest.version));
  filled.set_id(messages_.asked().id());
  for (const ResponseOutput& output : answer.outputs) {
    const OutputTensor tensor = engine.tensors().Answer(output, examples_, is_batch_of_one_);
    inference::ModelInferResponse::InferOutputTensor* const described = filled.add_outputs();
    described->set_name(tensor.name.data(), tensor.name.size());
    described->set_datatype(kFp32.data(), kFp32.size());
    described->mutable_shape()->Assign(tensor.shape.begin(), tensor.shape.end());
    filled.add_raw_output_contents(tensor.bytes.data(), tensor.bytes.size());
  }
  for (const UnknownIdCount& unknown : answer.unknown_ids) {
    const std::string& feature = manifest.schema.sparse[unknown.sparse_input].name;
    (*filled.mutable_parameters())["unknown_ids." + feature].set_int64_param(
        static_cast<int64_t>(unknown.count));
  }
  if (on_stream_) (*filled.mutable_parameters())[kFinal].set_bool_param(true);
}

void OipMessages::Fail(const grpc::Status& status, std::chrono::milliseconds pushback) {
  messages_.answer().set_error_message(status.error_message());
  inference::ModelInferResponse& failed = *messages_.answer().mutable_infer_response();
  failed.Clear();
  failed.set_id(messages_.asked().id());
  auto& parameters = *failed.mutable_parameters();
  parameters[kFinal].set_bool_param(true);
  parameters["code"].set_int64_param(status.error_code());
  if (pushback.count() > 0) parameters["retry_pushback_ms"].set_int64_param(pushback.count());
}

}  // namespace embershard::rpc
