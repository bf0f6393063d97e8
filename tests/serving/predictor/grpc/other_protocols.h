// GoodInputs() in the protocols of others, whose answers are kGoodScores and kGoodProfile.

#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "batching/fake_model.h"
#include "grpc/serving_fixture.h"
#include "inference/open_inference.pb.h"
#include "torchrec/predictor.pb.h"

namespace embershard::rpc {

// Adds a tensor with raw contents.
template <class T>
void AddRaw(const std::string& name, const char* datatype, std::vector<int64_t> shape,
            const std::vector<T>& values, inference::ModelInferRequest* message) {
  auto* const input = message->add_inputs();
  input->set_name(name);
  input->set_datatype(datatype);
  for (const int64_t size : shape) input->add_shape(size);
  message->add_raw_input_contents(BytesOf(values));
}

template <class T>
void AddRow(const std::string& name, const char* datatype, const std::vector<T>& values,
            inference::ModelInferRequest* message) {
  AddRaw(name, datatype, {static_cast<int64_t>(values.size())}, values, message);
}

// Input by input.
inline inference::ModelInferRequest InferByName() {
  const Manifest manifest = FakeManifest();
  const FakeInputs inputs = GoodInputs();
  inference::ModelInferRequest message;
  message.set_model_name(manifest.model);
  message.set_id("by name");
  for (size_t i = 0; i < inputs.dense.size(); ++i) {
    if (inputs.dense[i].empty()) continue;
    AddRow(manifest.schema.dense[i].name, "FP32", inputs.dense[i], &message);
  }
  for (size_t i = 0; i < inputs.sparse.size(); ++i) {
    const FakeLists& lists = inputs.sparse[i];
    if (lists.lengths.empty()) continue;
    const std::string& name = manifest.schema.sparse[i].name;
    AddRow(name + ".lengths", "INT32", lists.lengths, &message);
    AddRow(name + ".values", "INT64", lists.values, &message);
    if (!lists.weights.empty()) AddRow(name + ".weights", "FP32", lists.weights, &message);
  }
  return message;
}

// All at once.
inline inference::ModelInferRequest InferPacked() {
  const SampleRequest sample = GoodSample();
  inference::ModelInferRequest message;
  message.set_model_version("3");
  (*message.mutable_parameters())["num_examples"].set_int64_param(sample.num_examples);
  (*message.mutable_parameters())["timeout"].set_int64_param(60'000'000);
  AddRow("REQUEST_DENSE", "FP32", sample.request_dense, &message);
  AddRaw("DENSE", "FP32", {2, 2}, sample.example_dense, &message);
  AddRow("LENGTHS", "INT32", sample.lengths, &message);
  AddRow("VALUES", "INT64", sample.values, &message);
  AddRow("WEIGHTS", "FP32", sample.weights, &message);
  message.add_outputs()->set_name("score");
  message.add_outputs()->set_name("profile");
  return message;
}

// The same with typed contents in place of raw ones.
inline inference::ModelInferRequest Typed(inference::ModelInferRequest message) {
  for (int i = 0; i < message.inputs_size(); ++i) {
    auto* const input = message.mutable_inputs(i);
    const std::string& raw = message.raw_input_contents(i);
    auto* const contents = input->mutable_contents();
    if (input->datatype() == "FP32") {
      for (const float value : FloatsOf(raw)) contents->add_fp32_contents(value);
    } else if (input->datatype() == "INT32") {
      const Unaligned<int32_t> values(raw.data(), raw.size() / sizeof(int32_t));
      for (size_t k = 0; k < values.size(); ++k) contents->add_int_contents(values[k]);
    } else {
      const Unaligned<int64_t> values(raw.data(), raw.size() / sizeof(int64_t));
      for (size_t k = 0; k < values.size(); ++k) contents->add_int64_contents(values[k]);
    }
  }
  message.clear_raw_input_contents();
  return message;
}

// In the manifest's order; what is in request scope stands once for each of the two examples.
inline predictor::PredictionRequest TorchRecMessage() {
  predictor::PredictionRequest message;
  message.set_batch_size(2);
  auto* const dense = message.mutable_float_features();
  dense->set_num_features(3);
  dense->set_values(BytesOf(std::vector<float>{30, 1.5, 0.25, 30, 2.5, 0.25}));
  auto* const lists = message.mutable_id_list_features();
  lists->set_num_features(4);  // user, item, history, tag
  lists->set_lengths(BytesOf(std::vector<int32_t>{1, 1, 1, 1, 2, 2, 0, 0}));
  lists->set_values(BytesOf(std::vector<int32_t>{7, 7, 101, 205, 3, 9, 3, 9}));
  auto* const weighted = message.mutable_id_score_list_features();
  weighted->set_num_features(1);  // genre
  weighted->set_lengths(BytesOf(std::vector<int32_t>{2, 0}));
  weighted->set_values(BytesOf(std::vector<int32_t>{4, 1000}));
  weighted->set_weights(BytesOf(std::vector<float>{0.5, 2}));
  return message;
}

}  // namespace embershard::rpc
