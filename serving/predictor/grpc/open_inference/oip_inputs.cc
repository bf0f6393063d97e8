#include "grpc/open_inference/oip_inputs.h"

#include <string>

#include "grpc/open_inference/oip_parameters.h"

namespace embershard::rpc {
namespace {

using Input = inference::ModelInferRequest::InferInputTensor;

template <class Values>
std::string_view BytesOf(const Values& values) {
  return {reinterpret_cast<const char*>(values.data()),
          static_cast<size_t>(values.size()) * sizeof(*values.data())};
}

// How many kinds of contents have values.
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

// The values that go with the datatype. Of one that no input has there are none: it is refused by
// its name.
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
    return InvalidArgument("tensor '" + input.name() + "': expected contents in " + field +
                           " alone for datatype '" + input.datatype() + "'");
  }
  return bytes;
}

Status CheckRaw(const inference::ModelInferRequest& message) {
  if (message.raw_input_contents_size() != message.inputs_size()) {
    return InvalidArgument("raw_input_contents: expected " + std::to_string(message.inputs_size()) +
                           ", one for each input, got " +
                           std::to_string(message.raw_input_contents_size()));
  }
  for (const Input& input : message.inputs()) {
    if (CountKinds(input.contents()) == 0) continue;
    return InvalidArgument("tensor '" + input.name() +
                           "': expected contents or raw_input_contents, got both");
  }
  return {};
}

}  // namespace

Status OipInputs::Read(const inference::ModelInferRequest& message) {
  const bool raw = message.raw_input_contents_size() > 0;
  if (raw) {
    if (Status status = CheckRaw(message); !status.ok()) return status;
  }
  tensors_.clear();
  bytes_.assign(static_cast<size_t>(message.inputs_size()), {});
  for (int i = 0; i < message.inputs_size(); ++i) {
    const Input& input = message.inputs(i);
    const Status status = CheckNone("tensor", input.name(), input.parameters());
    if (!status.ok()) return status;
    std::string_view& bytes = bytes_[static_cast<size_t>(i)];
    if (raw) {
      bytes = message.raw_input_contents(i);
    } else {
      const Result<std::string_view> typed = TypedBytes(input);
      if (!typed.ok()) return typed.status();
      bytes = *typed;
    }
    tensors_.push_back({.name = input.name(),
                        .datatype = input.datatype(),
                        .shape = {input.shape().data(), static_cast<size_t>(input.shape_size())},
                        .buffers = {&bytes, 1}});
  }
  return {};
}

}  // namespace embershard::rpc
