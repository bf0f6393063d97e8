// Parses arbitrary bytes as a PredictRequest of our own protocol.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "embershard/v1/predictor.pb.h"
#include "fuzz/merged_request.h"
#include "grpc/embershard/predict_messages.h"

namespace embershard {
namespace {

using fuzz::Expect;

void ExpectAnswer(const fuzz::Answered& answered) {
  v1::PredictResponse response;
  Expect(response.ParseFromString(answered.bytes), "an answer is a message");
  Expect(response.outputs_size() == static_cast<int>(answered.outputs.size()),
         "every output is sent");
  for (const ResponseOutput& output : answered.outputs) {
    const OutputSpec& spec = fuzz::TheSchema().outputs[output.output];
    Expect(output.values.size() == fuzz::Rows(spec.scope, answered.num_examples) * spec.width,
           "an output has a row for each example, or one");
  }
}

// The arrays of a message. Random changes of bytes would seldom leave them valid.
std::vector<std::string*> Arrays(v1::PredictRequest* message) {
  std::vector<std::string*> arrays;
  if (message->has_packed()) {
    v1::Packed* const packed = message->mutable_packed();
    arrays = {packed->mutable_request_dense(), packed->mutable_example_dense(),
              packed->mutable_lengths(), packed->mutable_values(), packed->mutable_weights()};
  }
  for (v1::DenseValues& input : *message->mutable_dense()) arrays.push_back(input.mutable_values());
  for (v1::SparseValues& input : *message->mutable_sparse()) {
    arrays.insert(arrays.end(),
                  {input.mutable_lengths(), input.mutable_values(), input.mutable_weights()});
  }
  return arrays;
}

// Changes one array, or the number of examples.
void Change(v1::PredictRequest* message, std::minstd_rand* random) {
  const std::vector<std::string*> arrays = Arrays(message);
  if (arrays.empty() || (*random)() % 8 == 0) {
    message->set_num_examples(static_cast<uint32_t>((*random)() % 10));
  } else {
    fuzz::MutateText(arrays[(*random)() % arrays.size()], random);
  }
}

}  // namespace
}  // namespace embershard

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max,
                                          unsigned int seed) {
  using namespace embershard;
  return fuzz::Mutate<v1::PredictRequest>(data, size, size_max, seed, Change);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace embershard;
  rpc::PredictMessages messages;
  const auto answered = fuzz::Run<v1::PredictRequest>(&messages, data, size);
  if (answered) ExpectAnswer(*answered);
  return 0;
}
