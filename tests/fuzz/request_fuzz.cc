// Any bytes as a PredictRequest, through the parser, the door, the builder and the answer, merged
// with a good request that they must not disturb.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "batching/fake_model.h"
#include "embershard/v1/predictor.pb.h"
#include "engine/engine.h"
#include "fuzz/expect.h"
#include "grpc/request_parser.h"
#include "grpc/responses.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t size_max);

namespace embershard {
namespace {

using fuzz::Expect;

struct Answer {
  int times = 0;
  Status status;
  Response response;
};

void Keep(Answer* answer, Request* request) {
  request->answer = [answer](Status status, Response response) {
    ++answer->times;
    answer->status = std::move(status);
    answer->response = std::move(response);
  };
}

Engine& TheEngine() {
  static const std::unique_ptr<Engine> engine = [] {
    auto started = Engine::Start(std::make_unique<FakeModel>(), {});
    Expect(started.ok(), "the fake model starts");
    return std::move(*started);
  }();
  return *engine;
}

// Whoever sent it can learn what is wrong with it: nothing is the server's fault. Numbers may be so
// large that scores overflow.
void ExpectRefusal(const Status& status) {
  Expect(status.reason() == StatusReason::kNotFinite ||
             status.code() == StatusCode::kInvalidArgument ||
             status.code() == StatusCode::kNotFound ||
             status.code() == StatusCode::kFailedPrecondition,
         "a refusal blames the request");
  Expect(!status.message().empty(), "a refusal says what is wrong");
}

size_t Count(Scope scope, uint32_t num_examples) {
  return scope == Scope::kRequest ? 1 : num_examples;
}

// What the door promises of a request that it let in.
void ExpectChecked(const Request& request) {
  const Schema& schema = TheEngine().manifest().schema;
  const Limits& limits = TheEngine().limits();
  Expect(request.num_examples <= limits.max_examples, "no more examples than allowed");
  uint64_t ids = 0;
  for (size_t i = 0; i < schema.sparse.size(); ++i) {
    const SparseView& view = request.sparse[i];
    uint64_t sum = 0;
    for (size_t list = 0; list < view.lengths.size(); ++list) {
      Expect(view.lengths[list] >= 0, "no length is negative");
      sum += static_cast<uint64_t>(view.lengths[list]);
    }
    Expect(sum == view.values.size(), "the lengths sum to the number of values");
    Expect(view.weights.size() == (schema.sparse[i].weighted ? sum : 0), "a weight for each value");
    Expect(view.num_kept <= sum, "no more ids count than there are");
    ids += view.num_kept;
  }
  Expect(request.num_ids == ids && ids <= limits.max_ids, "no more ids than allowed");
}

void ExpectAnswered(const v1::PredictRequest& message, const Answer& answer) {
  const Manifest& manifest = TheEngine().manifest();
  v1::PredictResponse response;
  FillResponse(manifest, message, answer.response, &response);
  const auto& outputs = answer.response.outputs;
  Expect(response.outputs_size() == static_cast<int>(outputs.size()), "every output is sent");
  for (const ResponseOutput& output : outputs) {
    const OutputSpec& spec = manifest.schema.outputs[output.output];
    Expect(output.values.size() == Count(spec.scope, message.num_examples()) * spec.width,
           "an output has a row for each example, or one");
  }
}

void Run(const v1::PredictRequest& message) {
  const RequestParser parser(&TheEngine());
  auto request = std::make_unique<Request>();
  if (const Status status = parser.Parse(message, request.get()); !status.ok()) {
    return ExpectRefusal(status);
  }
  Expect(request->held_bytes >= message.SpaceUsedLong(), "a request counts what it holds");

  Answer answer;
  Keep(&answer, request.get());
  // The request is the engine's now, and may be looked at until it is answered.
  request->answer = [&, of = request.get(), keep = std::move(request->answer)](Status status,
                                                                               Response response) {
    if (status.ok()) ExpectChecked(*of);
    keep(std::move(status), std::move(response));
  };
  Answer good;
  std::vector<std::unique_ptr<Request>> requests;
  requests.push_back(std::move(request));
  requests.push_back(FakeRequest(GoodInputs()));
  const auto kept = std::move(requests.back()->answer);  // What lies under the views.
  Keep(&good, requests.back().get());
  TheEngine().PredictMerged(std::move(requests));

  Expect(answer.times == 1 && good.times == 1, "every request is answered once");
  Expect(good.status.ok(), "a good request is answered whatever it is merged with");
  Expect(good.response.outputs[0].values == kGoodScores, "with the scores of its own");
  Expect(good.response.outputs[1].values == kGoodProfile, "and its own profile");
  if (!answer.status.ok()) return ExpectRefusal(answer.status);
  ExpectAnswered(message, answer);
}

// The arrays of a message, which bytes changed at random seldom leave whole.
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

void MutateText(std::string* text, std::minstd_rand* random) {
  const size_t size = text->size();
  text->resize(size + 16);
  text->resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(text->data()), size, text->size()));
  if ((*random)() % 2 == 0) text->resize(text->size() / 8 * 8);  // Whole values, mostly.
}

}  // namespace
}  // namespace embershard

// Changes one array or the number of examples and keeps the message one; now and then any byte.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max,
                                          unsigned int seed) {
  std::minstd_rand random(seed);
  embershard::v1::PredictRequest message;
  if (random() % 4 == 0 || !message.ParseFromArray(data, static_cast<int>(size))) {
    return LLVMFuzzerMutate(data, size, size_max);
  }
  const std::vector<std::string*> arrays = embershard::Arrays(&message);
  if (arrays.empty() || random() % 8 == 0) {
    message.set_num_examples(static_cast<uint32_t>(random() % 10));
  } else {
    embershard::MutateText(arrays[random() % arrays.size()], &random);
  }
  if (message.ByteSizeLong() > size_max) return LLVMFuzzerMutate(data, size, size_max);
  const std::string bytes = message.SerializeAsString();
  std::memcpy(data, bytes.data(), bytes.size());
  return bytes.size();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  embershard::SilenceProtobuf();
  embershard::v1::PredictRequest message;
  if (message.ParseFromArray(data, static_cast<int>(size))) embershard::Run(message);
  return 0;
}
