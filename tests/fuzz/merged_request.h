// Runs arbitrary bytes as a request of one protocol: parser, validation, batch and answer. The
// request is merged with a good request, whose answer it must not change.

#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "batching/fake_model.h"
#include "engine/engine.h"
#include "fuzz/expect.h"
#include "grpc/predict/wire_messages.h"
#include "grpc/status_map.h"
#include "registry/served_models.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t size_max);

namespace embershard::fuzz {

// Serves only the fake model.
inline const ServedModels& Served() {
  static const std::shared_ptr<ServedModels> served = [] {
    rpc::SilenceProtobuf();
    auto started = Engine::Start(std::make_unique<FakeModel>(), {});
    Expect(started.ok(), "the fake model starts");
    return ServedModels::Of(std::move(*started));
  }();
  return *served;
}

inline const Schema& TheSchema() {
  static const Schema schema = FakeManifest().schema;
  return schema;
}

// A refusal tells the client what is wrong with the request, and is no error of the server. Scores
// may overflow, since numbers may be large.
inline void ExpectRefusal(const Status& status) {
  Expect(status.reason() == StatusReason::kNotFinite ||
             status.code() == StatusCode::kInvalidArgument ||
             status.code() == StatusCode::kNotFound ||
             status.code() == StatusCode::kFailedPrecondition,
         "a refusal blames the request");
  Expect(!status.message().empty(), "a refusal says what is wrong");
}

// Number of rows of an output with that scope.
inline size_t Rows(Scope scope, uint32_t num_examples) {
  return scope == Scope::kRequest ? 1 : num_examples;
}

// Checks the properties of every request that validation accepts.
inline void ExpectChecked(const Request& request, const Limits& limits) {
  const Schema& schema = TheSchema();
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
    Expect(view.num_ids <= sum, "no more ids count than there are");
    ids += view.num_ids;
  }
  Expect(request.num_ids == ids && ids <= limits.max_ids, "no more ids than allowed");
}

// Bytes in several slices, as a connection delivers them.
inline grpc::ByteBuffer InSlices(const uint8_t* data, size_t size) {
  const grpc::Slice slices[] = {{data, size / 2}, {data + size / 2, size - size / 2}};
  return grpc::ByteBuffer(slices, std::size(slices));
}

inline std::string TextOf(const grpc::ByteBuffer& bytes) {
  std::vector<grpc::Slice> slices;
  std::string text;
  Expect(bytes.Dump(&slices).ok(), "an answer has bytes");
  for (const grpc::Slice& slice : slices) {
    text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return text;
}

// The answer to a request, also in the bytes of the protocol.
struct Answered {
  std::string bytes;
  uint32_t num_examples = 0;
  std::vector<ResponseOutput> outputs;
};

// Runs `request` merged with a good one. `messages` owns the bytes of `request`.
inline std::optional<Answered> RunMerged(Engine* engine, rpc::WireMessages* messages,
                                         std::unique_ptr<Request> request) {
  int times = 0;
  Status ended;
  Answered answered;
  request->answer = [&, fuzzed = request.get()](Status status, Response response) {
    ++times;
    ended = std::move(status);
    if (!ended.ok()) return;
    ExpectChecked(*fuzzed, engine->limits());  // It lives until it is answered.
    messages->Fill(*engine, response);
    answered.num_examples = fuzzed->num_examples;
    answered.outputs = std::move(response.outputs);
  };
  int good_times = 0;
  Status good_ended;
  Response good;
  std::vector<std::unique_ptr<Request>> requests;
  requests.push_back(std::move(request));
  requests.push_back(FakeRequest(GoodInputs()));
  const auto good_bytes = requests.back()->bytes;  // Keeps the memory of the views.
  requests.back()->answer = [&](Status status, Response response) {
    ++good_times;
    good_ended = std::move(status);
    good = std::move(response);
  };
  engine->PredictMerged(std::move(requests));

  Expect(times == 1 && good_times == 1, "every request is answered once");
  Expect(good_ended.ok(), "a good request is answered whatever it is merged with");
  Expect(good.outputs[0].values == kGoodScores, "the good request has its own scores");
  Expect(good.outputs[1].values == kGoodProfile, "the good request has its own profile");
  if (!ended.ok()) {
    ExpectRefusal(ended);
    messages->Fail(rpc::ToGrpcStatus(ended), std::chrono::milliseconds(20));
    static_cast<void>(TextOf(messages->Write()));
    return {};
  }
  answered.bytes = TextOf(messages->Write());
  return answered;
}

// Returns nothing if the bytes were refused. `Message`: the message that they are parsed as.
template <class Message>
std::optional<Answered> Run(rpc::WireMessages* messages, const uint8_t* data, size_t size) {
  grpc::ByteBuffer bytes = InSlices(data, size);
  if (const Status status = messages->Read(&bytes); !status.ok()) {
    ExpectRefusal(status);
    return {};
  }
  Expect(messages->bytes_received() == size, "bytes are counted as they came");
  Expect(messages->timeout().count() >= 0, "the timeout is not negative");
  const auto engine = messages->Find(Served());
  if (!engine.ok()) {
    ExpectRefusal(engine.status());
    return {};
  }
  auto request = std::make_unique<Request>();
  if (const Status status = messages->Parse(**engine, request.get()); !status.ok()) {
    ExpectRefusal(status);
    return {};
  }
  Message message;
  Expect(message.ParseFromArray(data, static_cast<int>(size)), "accepted bytes are a message");
  Expect(request->held_bytes >= message.SpaceUsedLong(), "a request counts the bytes it holds");
  return RunMerged(engine->get(), messages, std::move(request));
}

// Changes some bytes of a text. Half of the results hold complete values of 8 bytes.
inline void MutateText(std::string* text, std::minstd_rand* random) {
  const size_t size = text->size();
  text->resize(size + 16);
  text->resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(text->data()), size, text->size()));
  if ((*random)() % 2 == 0) text->resize(text->size() / 8 * 8);
}

// For LLVMFuzzerCustomMutator: `change` changes a message. One time in four, or if the bytes are no
// message, libFuzzer changes any bytes instead.
template <class Message, class Change>
size_t Mutate(uint8_t* data, size_t size, size_t size_max, unsigned int seed, Change change) {
  std::minstd_rand random(seed);
  Message message;
  if (random() % 4 == 0 || !message.ParseFromArray(data, static_cast<int>(size))) {
    return LLVMFuzzerMutate(data, size, size_max);
  }
  change(&message, &random);
  if (message.ByteSizeLong() > size_max) return LLVMFuzzerMutate(data, size, size_max);
  const std::string bytes = message.SerializeAsString();
  std::memcpy(data, bytes.data(), bytes.size());
  return bytes.size();
}

}  // namespace embershard::fuzz
