#include "grpc/open_inference/oip_messages.h"

#include <charconv>
#include <string>
#include <vector>

#include "grpc/open_inference/oip_inputs.h"
#include "grpc/open_inference/oip_parameters.h"
#include "tensors/tensor_map.h"

namespace embershard::rpc {
namespace {

// Of a stream's answer: no other follows for this request.
constexpr char kFinal[] = "triton_final_response";

Result<std::vector<std::string_view>> OutputNames(const inference::ModelInferRequest& asked) {
  std::vector<std::string_view> names;
  for (const auto& output : asked.outputs()) {
    const Status status = CheckNone("output", output.name(), output.parameters());
    if (!status.ok()) return status;
    names.push_back(output.name());
  }
  return names;
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
  const inference::ModelInferRequest& asked = messages_.asked();
  if (asked.model_version().empty()) {
    return served.Route(asked.model_name(), 0, "", TrafficKeyOf(asked.parameters()));
  }
  return FindOip(served, asked.model_name(), asked.model_version());
}

std::chrono::nanoseconds OipMessages::timeout() const {
  return TimeoutOf(messages_.asked().parameters());
}

Status OipMessages::Parse(const Engine& engine, Request* request) {
  const inference::ModelInferRequest& asked = messages_.asked();
  request->held_bytes = messages_.held_bytes();
  const Result<RequestParameters> parameters = ReadParameters(asked.parameters());
  if (!parameters.ok()) return parameters.status();
  const Result<std::vector<std::string_view>> outputs = OutputNames(asked);
  if (!outputs.ok()) return outputs.status();
  OipInputs inputs;
  if (Status status = inputs.Read(asked); !status.ok()) return status;
  is_batch_of_one_ = engine.tensors().IsBatchOfOne(inputs.tensors());
  const Status status = engine.tensors().Parse({.inputs = inputs.tensors(),
                                                .outputs = *outputs,
                                                .num_examples = parameters->num_examples,
                                                .priority = parameters->priority},
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
