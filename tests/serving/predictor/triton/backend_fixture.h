// A model and its instances in a fake server, over models made of a few lines, and requests for
// them.

#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "batching/fake_model.h"
#include "triton/fake_triton.h"
#include "triton/triton_model.h"

namespace embershard::triton {

template <class T>
inline constexpr TRITONSERVER_DataType kTritonType = TRITONSERVER_TYPE_INVALID;
template <>
inline constexpr TRITONSERVER_DataType kTritonType<float> = TRITONSERVER_TYPE_FP32;
template <>
inline constexpr TRITONSERVER_DataType kTritonType<int32_t> = TRITONSERVER_TYPE_INT32;
template <>
inline constexpr TRITONSERVER_DataType kTritonType<int64_t> = TRITONSERVER_TYPE_INT64;

// Adds a tensor. `shape`: empty for [1, as many as there are values].
template <class T>
void AddInput(TRITONBACKEND_Request* request, const char* name, const std::vector<T>& values,
              std::vector<int64_t> shape = {}) {
  if (shape.empty()) shape = {1, static_cast<int64_t>(values.size())};
  const std::string bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  request->inputs.push_back({.name = name,
                             .datatype = kTritonType<T>,
                             .shape = std::move(shape),
                             .buffers = {bytes},
                             .memory = TRITONSERVER_MEMORY_CPU});
}

inline TRITONBACKEND_Input* FindInput(TRITONBACKEND_Request* request, const std::string& name) {
  for (TRITONBACKEND_Input& input : request->inputs) {
    if (input.name == name) return &input;
  }
  ADD_FAILURE() << "no input " << name;
  return nullptr;
}

// Inputs of a model, input by input, each [1, n]; those that are left out have no values.
inline TRITONBACKEND_Request ToTritonRequest(const FakeInputs& inputs,
                                             const Schema& schema = FakeManifest().schema) {
  TRITONBACKEND_Request request;
  for (const OutputSpec& output : schema.outputs) request.outputs.push_back(output.name);
  for (size_t i = 0; i < inputs.dense.size(); ++i) {
    if (inputs.dense[i].empty()) continue;
    AddInput(&request, schema.dense[i].name.c_str(), inputs.dense[i]);
  }
  for (size_t i = 0; i < inputs.sparse.size(); ++i) {
    const FakeLists& lists = inputs.sparse[i];
    const std::string& name = schema.sparse[i].name;
    if (lists.lengths.empty()) continue;
    AddInput(&request, (name + ".values").c_str(), lists.values);
    AddInput(&request, (name + ".lengths").c_str(), lists.lengths);
    if (!lists.weights.empty()) AddInput(&request, (name + ".weights").c_str(), lists.weights);
  }
  return request;
}

inline TRITONBACKEND_Request GoodRequest() { return ToTritonRequest(GoodInputs()); }

// Inputs of `examples` examples. Example i has price i and scores 49 + i + 0.25 + 101.
inline FakeInputs ManyInputs(uint32_t examples) {
  FakeInputs inputs = GoodInputs();
  inputs.num_examples = examples;
  inputs.dense[1].clear();
  inputs.sparse[1] = {};
  inputs.sparse[3] = {};
  for (uint32_t i = 0; i < examples; ++i) {
    inputs.dense[1].push_back(static_cast<float>(i));
    inputs.sparse[1].lengths.push_back(1);
    inputs.sparse[1].values.push_back(101);
  }
  return inputs;
}

inline std::vector<float> ManyScores(uint32_t examples) {
  std::vector<float> scores;
  for (uint32_t i = 0; i < examples; ++i) scores.push_back(150.25F + static_cast<float>(i));
  return scores;
}

inline void ExpectAnswered(const Fate& fate) {
  EXPECT_EQ(fate.responses, 1);
  EXPECT_EQ(fate.releases, 1);
  EXPECT_EQ(fate.reports, 1);
  EXPECT_EQ(fate.reported_success, !fate.failed);
}

inline void ExpectGood(const Fate& fate) {
  ExpectAnswered(fate);
  ASSERT_FALSE(fate.failed) << fate.message;
  EXPECT_EQ(fate.outputs.at("score").datatype, TRITONSERVER_TYPE_FP32);
  EXPECT_EQ(fate.outputs.at("score").floats(), kGoodScores);
  EXPECT_EQ(fate.outputs.at("profile").floats(), kGoodProfile);
}

inline void ExpectFailed(const Fate& fate, TRITONSERVER_Error_Code code,
                         const std::string& message) {
  ExpectAnswered(fate);
  EXPECT_TRUE(fate.failed);
  EXPECT_EQ(fate.code, code);
  EXPECT_EQ(fate.message, message);
}

class BackendTest : public ::testing::Test {
 protected:
  BackendTest() {
    backend_.state = &open_;
    model_.backend = &backend_;
    instance_.model = &model_;
  }

  ~BackendTest() override {
    ExpectOk(TRITONBACKEND_ModelInstanceFinalize(&instance_));
    ExpectOk(TRITONBACKEND_ModelFinalize(&model_));
    EXPECT_EQ(FakeTriton::LiveRequests(), 0U);
    EXPECT_EQ(FakeTriton::LiveResponses(), 0U);
    EXPECT_EQ(FakeTriton::LiveErrors(), 0U);
    EXPECT_EQ(FakeTriton::LiveMessages(), 0U);
    FakeTriton::Reset();
  }

  static void ExpectOk(TRITONSERVER_Error* error) { EXPECT_EQ(Taken(error), ""); }

  // The message, after which the error is deleted.
  static std::string Taken(TRITONSERVER_Error* error) {
    if (error == nullptr) return "";
    std::string message = TRITONSERVER_ErrorMessage(error);
    TRITONSERVER_ErrorDelete(error);
    return message;
  }

  // Loads the model and starts an instance.
  void Start(const std::string& parameters = "") {
    model_.config = R"({"parameters": {)" + parameters + "}}";
    ASSERT_EQ(Taken(TRITONBACKEND_ModelInitialize(&model_)), "");
    ASSERT_EQ(Taken(TRITONBACKEND_ModelInstanceInitialize(&instance_)), "");
  }

  // Executes requests as the server does, and returns their fates.
  std::vector<Fate> Execute(const std::vector<TRITONBACKEND_Request>& requests) {
    std::vector<std::shared_ptr<Fate>> fates;
    std::vector<TRITONBACKEND_Request*> given;
    for (const TRITONBACKEND_Request& request : requests) {
      TRITONBACKEND_Request own = request;
      own.fate = std::make_shared<Fate>();
      fates.push_back(own.fate);
      given.push_back(FakeTriton::Take(std::move(own)));
    }
    ExpectOk(TRITONBACKEND_ModelInstanceExecute(&instance_, given.data(),
                                                static_cast<uint32_t>(given.size())));
    std::vector<Fate> ends;
    for (const auto& fate : fates) ends.push_back(*fate);
    return ends;
  }
  Fate Execute(const TRITONBACKEND_Request& request) { return Execute(std::vector{request})[0]; }

  // A fake model that records its runs and calls the test's functions.
  std::unique_ptr<Model> MakeModel() {
    auto model = std::make_unique<FakeModel>(FakeManifest(), samples_);
    model->num_slots = static_cast<size_t>(options_.slots);
    model->on_gpus = on_gpus_;
    ++models_made_;
    model->before_run = [this](const Slot& slot) {
      runs_.push_back({slot.requests, slot.examples});
      return before_run_(slot);
    };
    model->after_run = [this](Slot* slot) { after_run_(slot); };
    return model;
  }

  struct Run {
    size_t requests = 0;
    size_t examples = 0;
    bool operator==(const Run&) const = default;
  };

  std::vector<SampleRequest> samples_;
  bool on_gpus_ = false;  // Result of the model's is_on_gpus().
  std::vector<Run> runs_;
  int models_made_ = 0;
  std::function<Status(const Slot&)> before_run_ = [](const Slot&) { return Status(); };
  std::function<void(Slot*)> after_run_ = [](Slot*) {};
  std::filesystem::path opened_;
  ModelOptions options_;
  OpenModels open_ = [this](const std::filesystem::path& folder,
                            const ModelOptions& options) -> Result<std::unique_ptr<Model>> {
    opened_ = folder;
    options_ = options;
    return MakeModel();
  };

  TRITONBACKEND_Backend backend_;
  TRITONBACKEND_Model model_;
  TRITONBACKEND_ModelInstance instance_;
};

// The parameter of config.pbtxt as Triton writes it.
inline std::string Parameter(const std::string& key, const std::string& value) {
  return "\"" + key + R"(": {"string_value": ")" + value + "\"}";
}

}  // namespace embershard::triton
