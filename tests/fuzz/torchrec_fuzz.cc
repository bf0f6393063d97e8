// Parses arbitrary bytes as a PredictionRequest of TorchRec's protocol.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "fuzz/merged_request.h"
#include "grpc/torchrec/torchrec_messages.h"
#include "torchrec/predictor.pb.h"

namespace embershard {
namespace {

using fuzz::Expect;
using predictor::PredictionRequest;

void ExpectAnswer(const fuzz::Answered& answered) {
  predictor::PredictionResponse response;
  Expect(response.ParseFromString(answered.bytes), "an answer is a message");
  Expect(response.predictions_size() == 2 && answered.outputs.size() == 2, "every output is sent");
  Expect(
      response.predictions().at("default").data_size() == static_cast<int>(answered.num_examples),
      "a score for each example");
  Expect(response.predictions().at("profile").data_size() == 2, "one profile");
}

predictor::SparseFeatures* SparseOf(PredictionRequest* message, std::minstd_rand* random) {
  switch ((*random)() % 8) {
    case 0:
      return message->mutable_unary_features();
    case 1:
    case 2:
    case 3:
      return message->mutable_id_score_list_features();
    default:
      return message->mutable_id_list_features();
  }
}

predictor::FloatFeatures* FloatsIn(PredictionRequest* message, std::minstd_rand* random) {
  return (*random)() % 8 == 0 ? message->mutable_embedding_features()
                              : message->mutable_float_features();
}

// Changes one array or one number.
void Change(PredictionRequest* message, std::minstd_rand* random) {
  const auto number = static_cast<int32_t>((*random)() % 10) - 1;
  predictor::SparseFeatures* const lists = SparseOf(message, random);
  switch ((*random)() % 10) {
    case 0:
      message->set_batch_size(number);
      break;
    case 1:
      lists->set_num_features(number);
      break;
    case 2:
      FloatsIn(message, random)->set_num_features(number);
      break;
    case 3:
    case 4:
      fuzz::MutateText(FloatsIn(message, random)->mutable_values(), random);
      break;
    case 5:
    case 6:
      fuzz::MutateText(lists->mutable_lengths(), random);
      break;
    case 7:
      fuzz::MutateText(lists->mutable_weights(), random);
      break;
    default:
      fuzz::MutateText(lists->mutable_values(), random);
  }
}

}  // namespace
}  // namespace embershard

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max,
                                          unsigned int seed) {
  using namespace embershard;
  return fuzz::Mutate<PredictionRequest>(data, size, size_max, seed, Change);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace embershard;
  rpc::TorchRecMessages messages;
  const auto answered = fuzz::Run<PredictionRequest>(&messages, data, size);
  if (answered) ExpectAnswer(*answered);
  return 0;
}
