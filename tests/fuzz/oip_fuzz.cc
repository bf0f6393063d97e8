// Parses arbitrary bytes as a ModelInferRequest of the Open Inference Protocol, of a call or of a
// stream.

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <string_view>

#include "fuzz/merged_request.h"
#include "grpc/open_inference/oip_messages.h"
#include "inference/open_inference.pb.h"

namespace embershard {
namespace {

using fuzz::Expect;
using inference::ModelInferRequest;
using Input = ModelInferRequest::InferInputTensor;

void ExpectAnswer(const fuzz::Answered& answered, const inference::ModelInferResponse& response) {
  const int outputs = static_cast<int>(answered.outputs.size());
  Expect(response.outputs_size() == outputs && response.raw_output_contents_size() == outputs,
         "every output is sent");
  for (int i = 0; i < outputs; ++i) {
    const auto& output = response.outputs(i);
    uint64_t values = 1;
    for (const int64_t size : output.shape()) values *= static_cast<uint64_t>(size);
    Expect(output.datatype() == "FP32", "an output has floats");
    Expect(response.raw_output_contents(i).size() == values * sizeof(float),
           "an output has the size of its shape");
    const size_t index = answered.outputs[static_cast<size_t>(i)].output;
    const OutputSpec& spec = fuzz::TheSchema().outputs[index];
    Expect(values == fuzz::Rows(spec.scope, answered.num_examples) * spec.width,
           "an output has a row for each example, or one");
  }
}

void RunRequest(bool on_stream, const uint8_t* data, size_t size) {
  rpc::OipMessages messages(on_stream);
  const auto answered = fuzz::Run<ModelInferRequest>(&messages, data, size);
  if (!answered) return;
  inference::ModelStreamInferResponse response;
  const bool is_message = on_stream
                              ? response.ParseFromString(answered->bytes)
                              : response.mutable_infer_response()->ParseFromString(answered->bytes);
  Expect(is_message && response.error_message().empty(), "an answer is a message");
  ExpectAnswer(*answered, response.infer_response());
}

constexpr const char* kNames[] = {
    "age",           "price",   "item.values", "item.lengths", "tag.values", "DENSE", "VALUES",
    "genre.weights", "LENGTHS", "score",       "profile",      "",           "nobody"};
constexpr const char* kTypes[] = {"FP32", "INT32", "INT64", "BYTES", ""};
constexpr const char* kKeys[] = {"num_examples", "priority",     "timeout",
                                 "sequence_id",  "sequence_end", "unknown"};
constexpr int64_t kNumbers[] = {0, 1, 2, 3, 8, -1, 1 << 20, INT64_MAX, INT64_MIN};

template <class T, size_t N>
T OneOf(const T (&choices)[N], std::minstd_rand* random) {
  return choices[(*random)() % N];
}

void ChangeContents(inference::InferTensorContents* contents, std::minstd_rand* random) {
  const auto number = OneOf(kNumbers, random);
  const int size = static_cast<int>((*random)() % 6);
  switch ((*random)() % 6) {
    case 0:
      contents->mutable_fp32_contents()->Resize(size, static_cast<float>(number));
      break;
    case 1:
      contents->mutable_int_contents()->Resize(size, static_cast<int32_t>(number));
      break;
    case 2:
      contents->mutable_int64_contents()->Resize(size, number);
      break;
    case 3:
      contents->mutable_uint64_contents()->Resize(size, 1);
      break;
    case 4:
      contents->add_bytes_contents("bytes");
      break;
    default:
      contents->Clear();
  }
}

void ChangeInput(Input* input, std::minstd_rand* random) {
  switch ((*random)() % 5) {
    case 0:
      input->set_name(OneOf(kNames, random));
      break;
    case 1:
      input->set_datatype(OneOf(kTypes, random));
      break;
    case 2:
      input->add_shape(OneOf(kNumbers, random));
      break;
    case 3:
      if (input->shape_size() > 0) input->set_shape(0, OneOf(kNumbers, random));
      break;
    default:
      ChangeContents(input->mutable_contents(), random);
  }
}

// Changes one tensor, its bytes, one parameter, or the requested outputs.
void Change(ModelInferRequest* message, std::minstd_rand* random) {
  const auto inputs = static_cast<uint32_t>(message->inputs_size());
  const auto raw = static_cast<uint32_t>(message->raw_input_contents_size());
  switch ((*random)() % 8) {
    case 0:
      (*message->mutable_parameters())[OneOf(kKeys, random)].set_int64_param(
          OneOf(kNumbers, random));
      break;
    case 1:
      message->add_outputs()->set_name(OneOf(kNames, random));
      break;
    case 2:
      if (raw > 0) message->mutable_raw_input_contents()->RemoveLast();
      break;
    case 3:
    case 4:
      if (inputs > 0) {
        ChangeInput(message->mutable_inputs(static_cast<int>((*random)() % inputs)), random);
      }
      break;
    default:
      if (raw == 0) break;
      fuzz::MutateText(message->mutable_raw_input_contents(static_cast<int>((*random)() % raw)),
                       random);
  }
}

}  // namespace
}  // namespace embershard

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max,
                                          unsigned int seed) {
  using namespace embershard;
  return fuzz::Mutate<ModelInferRequest>(data, size, size_max, seed, Change);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  embershard::RunRequest(/*on_stream=*/size % 2 == 1, data, size);
  return 0;
}
