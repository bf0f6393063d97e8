// Models and instances: how they are loaded, refused and ended.

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/core_count.h"
#include "triton/backend_fixture.h"
#include "triton/triton_model.h"

namespace embershard::triton {
namespace {

class BackendLifeTest : public BackendTest {
 protected:
  // Error of loading with these parameters. Empty: none.
  std::string Load(const std::string& parameters) {
    model_.config = R"({"parameters": {)" + parameters + "}}";
    return LoadConfigured();
  }
  std::string LoadConfigured() {
    std::string message = Taken(TRITONBACKEND_ModelInitialize(&model_));
    if (message.empty()) return message;
    EXPECT_EQ(model_.state, nullptr);
    return message;
  }
};

TEST_F(BackendLifeTest, ThePackageLiesInTheVersionsFolder) {
  EXPECT_EQ(Load(""), "");
  EXPECT_EQ(opened_.string(), "/models/fake/3");
  EXPECT_EQ(options_.package.plan, "");
  EXPECT_EQ(options_.package.residency, TableResidency::kMmap);
  EXPECT_EQ(options_.fbgemm_folder.string(), "");
  EXPECT_EQ(FakeTriton::log().back(),
            "model 'fake', version 3: batches of up to 256 examples and 1048576 ids; dense program "
            "cpu: no other fits");
}

TEST_F(BackendLifeTest, ParametersSayHowItIsLoaded) {
  EXPECT_EQ(Load(Parameter("plan", "two") + "," + Parameter("tables", "resident") + "," +
                 Parameter("threads", "3") + "," + Parameter("dense_program", "cpu") + "," +
                 Parameter("fbgemm", "/fbgemm") + "," + Parameter("max_batch_examples", "77") +
                 "," + Parameter("max_batch_ids", "99") + "," +
                 Parameter("TRITON_BATCH_STRATEGY_PATH", "/somewhere")),
            "");
  EXPECT_EQ(options_.package.plan, "two");
  EXPECT_EQ(options_.package.residency, TableResidency::kResident);
  EXPECT_EQ(options_.threads, 3 * CoreCount());
  EXPECT_EQ(options_.dense_program, "cpu");
  EXPECT_EQ(options_.fbgemm_folder.string(), "/fbgemm");
  EXPECT_EQ(
      FakeTriton::log().back(),
      "model 'fake', version 3: batches of up to 77 examples and 99 ids; dense program cpu: no "
      "other fits");
}

TEST_F(BackendLifeTest, WithoutStatedInstancesEachCoreHasASlotOfOneThread) {
  EXPECT_EQ(Load(""), "");
  EXPECT_EQ(options_.slots, CoreCount());
  EXPECT_EQ(options_.threads, CoreCount());
}

TEST_F(BackendLifeTest, StatedInstancesShareTheCores) {
  model_.config = R"({"instance_group": [{"kind": "KIND_CPU", "count": 1000}, {"count": 24}]})";
  EXPECT_EQ(LoadConfigured(), "");
  EXPECT_EQ(options_.slots, 1024);
  EXPECT_EQ(options_.threads, 1024);
  ExpectOk(TRITONBACKEND_ModelFinalize(&model_));

  model_.config = R"({"instance_group": [{"kind": "KIND_CPU", "count": 1}]})";
  EXPECT_EQ(LoadConfigured(), "");
  EXPECT_EQ(options_.slots, 1);
  EXPECT_EQ(options_.threads, CoreCount());
  ExpectOk(TRITONBACKEND_ModelFinalize(&model_));

  // Triton starts as many on each GPU.
  model_.config = R"({"instance_group": [{"kind": "KIND_GPU", "count": 2, "gpus": [0, 1]}]})";
  EXPECT_EQ(LoadConfigured(), "");
  EXPECT_EQ(options_.slots, 4);
}

TEST_F(BackendLifeTest, RefusesParametersThatItDoesNotKnow) {
  EXPECT_EQ(Load(Parameter("thraeds", "3")),
            "parameter 'thraeds': expected one of 'dense_program', 'fbgemm', 'max_batch_examples', "
            "'max_batch_ids', 'plan', 'tables', 'threads'");
  EXPECT_EQ(Load(Parameter("tables", "disk")),
            "parameter 'tables': expected mmap or resident, got 'disk'");
  for (const char* const bad : {"0", "-1", "1025", "two", "2x", "", " 2"}) {
    EXPECT_EQ(
        Load(Parameter("threads", bad)),
        "parameter 'threads': expected a whole number in 1..1024, got '" + std::string(bad) + "'");
  }
  EXPECT_EQ(Load(Parameter("max_batch_examples", "4294967296")),
            "parameter 'max_batch_examples': expected a whole number in 1..4294967295, got "
            "'4294967296'");
  EXPECT_EQ(Load(Parameter("max_batch_ids", "0")),
            "parameter 'max_batch_ids': expected a whole number in 1..1099511627776, got '0'");
  EXPECT_EQ(Load(R"("threads": {"string_value": 3})"),
            "parameter 'threads': expected a whole number in 1..1024, got ''");
}

TEST_F(BackendLifeTest, RefusesAConfigurationThatIsNoJson) {
  model_.config = "name: x";
  EXPECT_TRUE(LoadConfigured().starts_with("config.pbtxt: json: expected")) << LoadConfigured();
}

TEST_F(BackendLifeTest, RefusesAPackageOfAnotherNameOrVersion) {
  model_.version = 4;
  EXPECT_EQ(Load(""), "manifest.json: version: expected 4 (its folder), got 3");
  model_.version = 3;
  model_.name = "other";
  EXPECT_EQ(Load(""), "manifest.json: model: expected other (its folder), got fake");
}

TEST_F(BackendLifeTest, RefusesWhatCannotBeOpened) {
  open_ = [](const auto&, const auto&) -> Result<std::unique_ptr<Model>> {
    return BadPackage("manifest.json: bytes: expected 7, got 6");
  };
  EXPECT_EQ(Load(""), "manifest.json: bytes: expected 7, got 6");
  backend_.state = nullptr;
  EXPECT_EQ(Load(""), "the backend has not been initialized");
}

TEST_F(BackendLifeTest, RefusesTensorsThatAreNotThePackagesAndSaysWhatToRun) {
  model_.config = R"({"input": [{"name": "prize", "data_type": "TYPE_FP32", "dims": [-1]}]})";
  EXPECT_EQ(LoadConfigured(),
            "config.pbtxt: input 'prize': the package has no such input; to write config.pbtxt "
            "anew, run `embershard triton-config --force /models/fake/3`");
}

TEST_F(BackendLifeTest, RefusesFeaturesOfTritonThatItDoesNotHave) {
  model_.config = R"({"sequence_batching": {}})";
  EXPECT_EQ(LoadConfigured(),
            "config.pbtxt: sequence_batching: expected none: sequences of requests are not served");
}

TEST_F(BackendLifeTest, RefusesMoreThreadsThanItsInstancesMayHave) {
  model_.config =
      R"({"instance_group": [{"count": 4}], "parameters": {)" + Parameter("threads", "257") + "}}";
  EXPECT_EQ(LoadConfigured(), "parameter 'threads': expected 1..256 beside 4 instances, got 257");
}

TEST_F(BackendLifeTest, CompletesAConfigurationWithoutTensors) {
  model_.auto_complete = true;
  model_.config = R"({"name": "fake", "max_batch_size": 0, "input": [], "output": []})";
  EXPECT_EQ(LoadConfigured(), "");
  const auto config = nlohmann::json::parse(model_.config);
  EXPECT_EQ(config["name"], "fake");
  EXPECT_EQ(config["max_batch_size"], 256);
  EXPECT_TRUE(config["dynamic_batching"].is_object());
  EXPECT_EQ(config["input"].size(), 19U);
  EXPECT_EQ(config["input"][0],
            nlohmann::json(
                {{"name", "age"}, {"data_type", "TYPE_FP32"}, {"dims", {1}}, {"optional", true}}));
  EXPECT_EQ(config["input"][3], nlohmann::json({{"name", "user.values"},
                                                {"data_type", "TYPE_INT64"},
                                                {"dims", {-1}},
                                                {"optional", true},
                                                {"allow_ragged_batch", true}}));
  EXPECT_EQ(config["output"][1],
            nlohmann::json({{"name", "profile"}, {"data_type", "TYPE_FP32"}, {"dims", {1, 2}}}));
}

TEST_F(BackendLifeTest, LeavesWhatIsStated) {
  model_.auto_complete = true;
  model_.config = R"({"max_batch_size": 8})";
  EXPECT_EQ(LoadConfigured(), "");
  const auto config = nlohmann::json::parse(model_.config);
  EXPECT_EQ(config["max_batch_size"], 8);
  EXPECT_FALSE(config.contains("dynamic_batching"));
  ExpectOk(TRITONBACKEND_ModelFinalize(&model_));

  const std::string stated =
      R"({"input": [{"name": "age", "data_type": "TYPE_FP32", "dims": [1]},
                    {"name": "price", "data_type": "TYPE_FP32", "dims": [-1]}]})";
  model_.config = stated;
  EXPECT_EQ(LoadConfigured(), "");
  EXPECT_EQ(model_.config, stated);
  ExpectOk(TRITONBACKEND_ModelFinalize(&model_));

  model_.auto_complete = false;
  model_.config = "{}";
  EXPECT_EQ(LoadConfigured(), "");
  EXPECT_EQ(model_.config, "{}");
}

TEST_F(BackendLifeTest, GivesDynamicBatchingWithoutASizeOne) {
  model_.auto_complete = true;
  model_.config = R"({"dynamic_batching": {"priority_levels": 2}})";
  EXPECT_EQ(LoadConfigured(), "");
  auto config = nlohmann::json::parse(model_.config);
  EXPECT_EQ(config["max_batch_size"], 256);
  EXPECT_EQ(config["dynamic_batching"]["priority_levels"], 2);
  EXPECT_EQ(config["input"].size(), 19U);
  ExpectOk(TRITONBACKEND_ModelFinalize(&model_));

  model_.config = R"({"dynamic_batching": {}, "max_batch_size": 0,
                      "input": [{"name": "age", "data_type": "TYPE_FP32", "dims": [1]},
                                {"name": "DENSE", "data_type": "TYPE_FP32", "dims": [-1, 2]}]})";
  EXPECT_EQ(LoadConfigured(), "");
  config = nlohmann::json::parse(model_.config);
  EXPECT_EQ(config["max_batch_size"], 256);
  EXPECT_EQ(config["input"].size(), 2U);
}

TEST_F(BackendLifeTest, SamplesAreRunBeforeAnInstanceIsReady) {
  samples_ = {GoodSample(), GoodSample()};
  EXPECT_EQ(Load(""), "");
  EXPECT_EQ(Taken(TRITONBACKEND_ModelInstanceInitialize(&instance_)), "");
  EXPECT_EQ(runs_, (std::vector<Run>{{1, 2}, {1, 2}, {2, 4}}));
  EXPECT_TRUE(instance_.batches.empty());
}

TEST_F(BackendLifeTest, AnInstanceWhoseSamplesDifferIsRefused) {
  samples_ = {GoodSample()};
  samples_[0].outputs[0][1] = 1;
  EXPECT_EQ(Load(""), "");
  EXPECT_EQ(Taken(TRITONBACKEND_ModelInstanceInitialize(&instance_)),
            "samples.safetensors: sample 0: output 'score' at example 1: expected 1, got 256.75 "
            "(tolerance 1e-05)");
  EXPECT_EQ(instance_.state, nullptr);
}

TEST_F(BackendLifeTest, AnInstanceOnAnotherKindOfDeviceIsRefused) {
  EXPECT_EQ(Load(""), "");
  instance_.kind = TRITONSERVER_INSTANCEGROUPKIND_GPU;
  EXPECT_EQ(Taken(TRITONBACKEND_ModelInstanceInitialize(&instance_)),
            "instance_group: kind: expected KIND_CPU, as the plan's devices say, got KIND_GPU");
}

TEST_F(BackendLifeTest, InstancesOfAPlanForGpusAreOfKindGpu) {
  on_gpus_ = true;
  EXPECT_EQ(Load(""), "");
  EXPECT_EQ(Taken(TRITONBACKEND_ModelInstanceInitialize(&instance_)),
            "instance_group: kind: expected KIND_GPU, as the plan's devices say, got KIND_CPU");
  instance_.kind = TRITONSERVER_INSTANCEGROUPKIND_GPU;
  ExpectOk(TRITONBACKEND_ModelInstanceInitialize(&instance_));
}

TEST_F(BackendLifeTest, InstancesShareOneModel) {
  Start();
  TRITONBACKEND_ModelInstance second;
  second.model = &model_;
  ExpectOk(TRITONBACKEND_ModelInstanceInitialize(&second));
  EXPECT_NE(second.state, instance_.state);
  EXPECT_EQ(models_made_, 1);
  ExpectGood(Execute(GoodRequest()));
  EXPECT_TRUE(second.batches.empty());
  ExpectOk(TRITONBACKEND_ModelInstanceFinalize(&second));
  ExpectGood(Execute(GoodRequest()));
}

TEST_F(BackendLifeTest, ALeaseWaitsUntilASlotIsFree) {
  model_.config = R"({"instance_group": [{"count": 2}]})";
  ASSERT_EQ(LoadConfigured(), "");
  auto* const model = static_cast<TritonModel*>(model_.state);
  const TritonModel::LeasedSlot first = model->LeaseSlot();
  TritonModel::LeasedSlot second = model->LeaseSlot();
  EXPECT_EQ(first->number, 0U);
  EXPECT_EQ(second->number, 1U);
  auto third = std::async(std::launch::async, [model] { return model->LeaseSlot()->number; });
  EXPECT_EQ(third.wait_for(std::chrono::milliseconds(10)), std::future_status::timeout);
  second.reset();
  EXPECT_EQ(third.get(), 1U);
}

TEST_F(BackendLifeTest, WhatTheServerRefusesIsToldAndNothingIsKept) {
  FakeTriton::FailAt("ModelName");
  EXPECT_EQ(Load(""), "ModelName was asked to fail");
  FakeTriton::FailAt("ModelSetState");
  EXPECT_EQ(Load(""), "ModelSetState was asked to fail");
}

}  // namespace
}  // namespace embershard::triton
