// Fates of the requests of one call.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <new>
#include <string>
#include <vector>

#include "engine/batch_executor.h"
#include "triton/backend_fixture.h"
#include "triton/triton_request.h"

namespace embershard::triton {
namespace {

using Runs = std::vector<std::pair<size_t, size_t>>;

class ExecutionTest : public BackendTest {
 protected:
  // Requests and examples of each run.
  Runs runs() const {
    Runs pairs;
    for (const Run& run : runs_) pairs.emplace_back(run.requests, run.examples);
    return pairs;
  }

  std::vector<uint64_t> BatchSizes() const {
    std::vector<uint64_t> sizes;
    for (const BatchReport& batch : instance_.batches) sizes.push_back(batch.size);
    return sizes;
  }
};

TRITONBACKEND_Request BadRequest() {
  FakeInputs inputs = GoodInputs();
  inputs.sparse[1].values[1] = -5;
  return ToTritonRequest(inputs);
}

constexpr char kBadMessage[] =
    "feature 'item': id -5 at example 1, position 0 is not in 0..1999 (policy: reject)";

TEST_F(ExecutionTest, AllRequestsRunAsOneBatchAndEachIsAnswered) {
  Start();
  const std::vector<Fate> fates = Execute({GoodRequest(), GoodRequest(), GoodRequest()});
  for (const Fate& fate : fates) ExpectGood(fate);
  EXPECT_EQ(runs(), (Runs{{3, 6}}));
}

TEST_F(ExecutionTest, OutputsHaveTheDimensionBeforeTheirOwnThatTheInputsHave) {
  Start();
  const Fate batched = Execute(GoodRequest());
  EXPECT_EQ(batched.outputs.at("score").shape, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(batched.outputs.at("profile").shape, (std::vector<int64_t>{1, 1, 2}));

  TRITONBACKEND_Request request = GoodRequest();
  for (TRITONBACKEND_Input& input : request.inputs) input.shape.erase(input.shape.begin());
  const Fate fate = Execute(request);
  ExpectGood(fate);
  EXPECT_EQ(fate.outputs.at("score").shape, std::vector<int64_t>{2});
  EXPECT_EQ(fate.outputs.at("profile").shape, (std::vector<int64_t>{1, 2}));
}

TEST_F(ExecutionTest, PackedInputsAreReadToo) {
  Start();
  const SampleRequest sample = GoodSample();
  TRITONBACKEND_Request request;
  request.outputs = {"score", "profile"};
  AddInput(&request, "REQUEST_DENSE", sample.request_dense);
  AddInput(&request, "DENSE", sample.example_dense, {1, 2, 2});
  AddInput(&request, "LENGTHS", sample.lengths);
  AddInput(&request, "VALUES", sample.values);
  AddInput(&request, "WEIGHTS", sample.weights);
  const Fate fate = Execute(request);
  ExpectGood(fate);
  EXPECT_EQ(fate.outputs.at("score").shape, (std::vector<int64_t>{1, 2}));
}

TEST_F(ExecutionTest, AnInputMayLieInSeveralBuffers) {
  Start();
  TRITONBACKEND_Request request = GoodRequest();
  for (TRITONBACKEND_Input& input : request.inputs) {
    const std::string bytes = input.buffers[0];
    input.buffers = {bytes.substr(0, 3), "", bytes.substr(3)};
  }
  TRITONBACKEND_Request none = ToTritonRequest(ManyInputs(1));
  FindInput(&none, "history.values")->buffers.clear();
  FindInput(&none, "history.values")->shape = {1, 0};
  *FindInput(&none, "history.lengths") = {.name = "history.lengths",
                                          .datatype = TRITONSERVER_TYPE_INT32,
                                          .shape = {1, 1},
                                          .buffers = {std::string(4, '\0')},
                                          .memory = TRITONSERVER_MEMORY_CPU_PINNED};
  const std::vector<Fate> fates = Execute({request, none});
  ExpectGood(fates[0]);
  EXPECT_EQ(fates[1].outputs.at("score").floats(), (std::vector<float>{150.25F - 12}));
}

TEST_F(ExecutionTest, OnlyTheOutputsThatAreWantedAreSent) {
  Start();
  TRITONBACKEND_Request request = GoodRequest();
  request.outputs = {"profile"};
  const Fate fate = Execute(request);
  ASSERT_FALSE(fate.failed) << fate.message;
  EXPECT_EQ(fate.outputs.size(), 1U);
  EXPECT_EQ(fate.outputs.at("profile").floats(), kGoodProfile);
}

TEST_F(ExecutionTest, UnknownIdsAreParametersOfTheAnswer) {
  Start();
  const Fate fate = Execute(GoodRequest());
  EXPECT_EQ(fate.parameters, (std::map<std::string, int64_t>{{"unknown_ids.genre", 1}}));
}

TEST_F(ExecutionTest, StatisticsCountExamples) {
  Start();
  const uint64_t before = SteadyNanoseconds();
  const std::vector<Fate> fates =
      Execute({GoodRequest(), BadRequest(), ToTritonRequest(ManyInputs(5))});
  EXPECT_EQ(BatchSizes(), std::vector<uint64_t>{7});
  for (const auto& moments : {instance_.batches[0].moments, fates[0].moments, fates[2].moments}) {
    EXPECT_TRUE(std::is_sorted(moments.begin(), moments.end()));
    EXPECT_GE(moments.front(), before);
  }
}

TEST_F(ExecutionTest, ARefusedRequestDisturbsNoOther) {
  Start();
  TRITONBACKEND_Request misspelt = GoodRequest();
  misspelt.parameters = {{"num_exampels", int64_t{2}}};
  TRITONBACKEND_Request mistyped = GoodRequest();
  FindInput(&mistyped, "item.values")->datatype = TRITONSERVER_TYPE_INT32;
  TRITONBACKEND_Request cut = GoodRequest();
  FindInput(&cut, "item.values")->buffers[0].resize(15);
  TRITONBACKEND_Request elsewhere = GoodRequest();
  FindInput(&elsewhere, "age")->memory = TRITONSERVER_MEMORY_GPU;
  const std::vector<Fate> fates = Execute({GoodRequest(), BadRequest(), misspelt, mistyped, cut,
                                           elsewhere, TRITONBACKEND_Request(), GoodRequest()});
  ExpectGood(fates.front());
  ExpectGood(fates.back());
  ExpectFailed(fates[1], TRITONSERVER_ERROR_INVALID_ARG, kBadMessage);
  ExpectFailed(fates[2], TRITONSERVER_ERROR_INVALID_ARG,
               "parameter 'num_exampels': expected one of 'num_examples', 'priority', 'timeout', "
               "'traffic_key'");
  ExpectFailed(fates[3], TRITONSERVER_ERROR_INVALID_ARG,
               "tensor 'item.values': expected datatype INT64, got 'INT32'");
  ExpectFailed(fates[4], TRITONSERVER_ERROR_INVALID_ARG,
               "tensor 'item.values': expected 16 bytes for INT64 [1, 2], got 15");
  ExpectFailed(fates[5], TRITONSERVER_ERROR_INVALID_ARG,
               "tensor 'age': expected memory of the host, got a device's");
  ExpectFailed(fates[6], TRITONSERVER_ERROR_INVALID_ARG,
               "num_examples: expected 1..8, got 0; without examples, name only outputs in request "
               "scope: 'profile'");
  EXPECT_EQ(runs(), (Runs{{2, 4}}));
}

TEST_F(ExecutionTest, ACallOfRefusedRequestsRunsNothing) {
  Start();
  Execute({BadRequest(), BadRequest()});
  EXPECT_EQ(runs(), Runs{});
  EXPECT_EQ(BatchSizes(), std::vector<uint64_t>{});
}

TEST_F(ExecutionTest, ParametersOfRequestsAreHeard) {
  Start();
  TRITONBACKEND_Request stated = GoodRequest();
  stated.parameters = {{"num_examples", int64_t{2}}, {"timeout", int64_t{0}}};
  TRITONBACKEND_Request wrong = GoodRequest();
  wrong.parameters = {{"num_examples", int64_t{3}}};
  TRITONBACKEND_Request text = GoodRequest();
  text.parameters = {{"num_examples", std::string("2")}};
  TRITONBACKEND_Request priority = GoodRequest();
  priority.parameters = {{"priority", int64_t{3}}};
  const std::vector<Fate> fates = Execute({stated, wrong, text, priority});
  ExpectGood(fates[0]);
  ExpectFailed(fates[1], TRITONSERVER_ERROR_INVALID_ARG,
               "feature 'price': expected 3 values, got 2");
  ExpectFailed(fates[2], TRITONSERVER_ERROR_INVALID_ARG,
               "parameter 'num_examples': expected a whole number");
  ExpectFailed(fates[3], TRITONSERVER_ERROR_INVALID_ARG, "priority: expected 0..2, got 3");
}

TEST_F(ExecutionTest, SequencesAndNegativeTimeoutsAreRefused) {
  Start();
  TRITONBACKEND_Request number = GoodRequest();
  number.sequence_id = uint64_t{5};
  TRITONBACKEND_Request text = GoodRequest();
  text.sequence_id = "mine";
  TRITONBACKEND_Request start = GoodRequest();
  start.flags = TRITONSERVER_REQUEST_FLAG_SEQUENCE_START;
  TRITONBACKEND_Request end = GoodRequest();
  end.flags = TRITONSERVER_REQUEST_FLAG_SEQUENCE_END;
  TRITONBACKEND_Request negative = GoodRequest();
  negative.timeout_us = static_cast<uint64_t>(int64_t{-5});
  TRITONBACKEND_Request good = GoodRequest();
  good.timeout_us = 1000;
  const std::vector<Fate> fates = Execute({number, text, start, end, negative, good});
  const std::vector<std::string> names = {"sequence_id", "sequence_id", "sequence_start",
                                          "sequence_end"};
  for (size_t i = 0; i < names.size(); ++i) {
    ExpectFailed(
        fates[i], TRITONSERVER_ERROR_INVALID_ARG,
        "parameter '" + names[i] + "': expected none: sequences of requests are not served");
  }
  ExpectFailed(fates[4], TRITONSERVER_ERROR_INVALID_ARG,
               "parameter 'timeout': expected microseconds, a whole number of at least 0");
  ExpectGood(fates[5]);
}

TEST_F(ExecutionTest, WhatExceedsABatchIsCutIntoAsFewAsCanBe) {
  Start(Parameter("max_batch_examples", "5"));
  const std::vector<TRITONBACKEND_Request> requests(5, GoodRequest());  // 2 examples each.
  for (const Fate& fate : Execute(requests)) ExpectGood(fate);
  EXPECT_EQ(runs(), (Runs{{2, 4}, {2, 4}, {1, 2}}));
  EXPECT_EQ(BatchSizes(), (std::vector<uint64_t>{4, 4, 2}));
  // A batch begins where the one before has ended.
  EXPECT_EQ(instance_.batches[1].moments.front(), instance_.batches[0].moments.back());
}

TEST_F(ExecutionTest, IdsAreCountedToo) {
  Start(Parameter("max_batch_ids", "15"));
  const std::vector<TRITONBACKEND_Request> requests(4, GoodRequest());  // 7 ids each.
  for (const Fate& fate : Execute(requests)) ExpectGood(fate);
  EXPECT_EQ(runs(), (Runs{{2, 4}, {2, 4}}));
}

TEST_F(ExecutionTest, ARequestLargerThanABatchRunsInChunksThatAreJoined) {
  Start(Parameter("max_batch_examples", "3"));
  const std::vector<Fate> fates = Execute({ToTritonRequest(ManyInputs(8)), GoodRequest()});
  ASSERT_FALSE(fates[0].failed) << fates[0].message;
  ExpectAnswered(fates[0]);
  EXPECT_EQ(fates[0].outputs.at("score").floats(), ManyScores(8));
  EXPECT_EQ(fates[0].outputs.at("score").shape, (std::vector<int64_t>{1, 8}));
  EXPECT_EQ(fates[0].outputs.at("profile").floats(), kGoodProfile);
  ExpectGood(fates[1]);
  EXPECT_EQ(runs(), (Runs{{1, 2}, {1, 3}, {1, 3}, {1, 2}}));
  EXPECT_EQ(BatchSizes(), (std::vector<uint64_t>{2, 3, 3, 2}));
}

constexpr float kPoison = 13;  // An age for which the model fails.

FakeInputs Poisoned(FakeInputs inputs = GoodInputs()) {
  inputs.dense[0] = {kPoison};
  return inputs;
}

Status FailWithPoison(const Slot& slot) {
  const auto& ages = slot.request_dense;
  if (std::find(ages.begin(), ages.end(), kPoison) == ages.end()) return {};
  return Internal("broken");
}

TEST_F(ExecutionTest, WhereTheModelFailsOnlyTheGuiltyRequestDoes) {
  Start();
  before_run_ = FailWithPoison;
  std::vector<TRITONBACKEND_Request> requests(7, GoodRequest());
  requests[4] = ToTritonRequest(Poisoned());
  const std::vector<Fate> fates = Execute(requests);
  for (size_t i = 0; i < fates.size(); ++i) {
    if (i == 4) {
      ExpectFailed(fates[i], TRITONSERVER_ERROR_INTERNAL, "broken");
    } else {
      ExpectGood(fates[i]);
    }
  }
  EXPECT_EQ(BatchSizes(), std::vector<uint64_t>{12});
}

TEST_F(ExecutionTest, AModelThatAlwaysFailsIsNotRunForEach) {
  Start();
  before_run_ = [](const Slot&) { return Internal("broken"); };
  for (const Fate& fate : Execute(std::vector<TRITONBACKEND_Request>(100, GoodRequest()))) {
    ExpectFailed(fate, TRITONSERVER_ERROR_INTERNAL, "broken");
  }
  EXPECT_EQ(runs_.size(), 1 + size_t{BatchExecutor::kRerunsInVain});
  EXPECT_EQ(BatchSizes(), std::vector<uint64_t>{});
}

TEST_F(ExecutionTest, AChunkThatFailsFailsItsRequestOnce) {
  Start(Parameter("max_batch_examples", "3"));
  before_run_ = FailWithPoison;
  const std::vector<Fate> fates =
      Execute({ToTritonRequest(Poisoned(ManyInputs(8))), GoodRequest()});
  ExpectFailed(fates[0], TRITONSERVER_ERROR_INTERNAL, "broken");
  ExpectGood(fates[1]);
  EXPECT_EQ(runs_.size(), 2U);
}

TEST_F(ExecutionTest, AnOutputThatIsNotFiniteFailsItsRequestAlone) {
  Start();
  after_run_ = [](Slot* slot) { slot->outputs[0][2] = std::numeric_limits<float>::quiet_NaN(); };
  const std::vector<Fate> fates = Execute({GoodRequest(), GoodRequest(), GoodRequest()});
  ExpectGood(fates[0]);
  ExpectFailed(fates[1], TRITONSERVER_ERROR_INTERNAL, "output 'score' at example 0 is not finite");
  ExpectGood(fates[2]);
  EXPECT_EQ(BatchSizes(), std::vector<uint64_t>{4});
}

TEST_F(ExecutionTest, CancelledRequestsAreNotComputed) {
  Start();
  TRITONBACKEND_Request left = GoodRequest();
  *left.is_cancelled = true;
  const std::vector<Fate> fates = Execute({GoodRequest(), left});
  ExpectGood(fates[0]);
  ExpectFailed(fates[1], TRITONSERVER_ERROR_CANCELLED, "the client left while the request waited");
  EXPECT_EQ(runs(), (Runs{{1, 2}}));
  Execute(left);
  EXPECT_EQ(runs_.size(), 1U);
}

TEST_F(ExecutionTest, AClientThatLeavesMeanwhileEndsTheRunsThatAreLeft) {
  Start(Parameter("max_batch_examples", "3"));
  TRITONBACKEND_Request whole = ToTritonRequest(ManyInputs(8));
  TRITONBACKEND_Request second = GoodRequest();
  before_run_ = [&](const Slot&) {
    *whole.is_cancelled = runs_.size() == 2;
    *second.is_cancelled = true;
    return Status();
  };
  // The good request is the first batch; the request that leaves meanwhile would be the second.
  const std::vector<Fate> fates = Execute({whole, GoodRequest(), second});
  ExpectFailed(fates[0], TRITONSERVER_ERROR_CANCELLED, "the client left while the request waited");
  ExpectGood(fates[1]);
  ExpectFailed(fates[2], TRITONSERVER_ERROR_CANCELLED, "the client left while the request waited");
  EXPECT_EQ(runs(), (Runs{{1, 2}, {1, 3}}));
}

TEST_F(ExecutionTest, AClientThatLeavesWhileItsBatchFailsIsNotRunAgain) {
  Start();
  TRITONBACKEND_Request left = GoodRequest();
  before_run_ = [&](const Slot& slot) {
    *left.is_cancelled = true;
    return FailWithPoison(slot);
  };
  const std::vector<Fate> fates = Execute({left, GoodRequest(), ToTritonRequest(Poisoned())});
  ExpectFailed(fates[0], TRITONSERVER_ERROR_CANCELLED, "the client left while the request waited");
  ExpectGood(fates[1]);
  ExpectFailed(fates[2], TRITONSERVER_ERROR_INTERNAL, "broken");
}

TEST_F(ExecutionTest, MemoryThatRunsOutInTheModelFailsRequestsAndNotTheServer) {
  Start();
  before_run_ = [](const Slot&) -> Status { throw std::bad_alloc(); };
  for (const Fate& fate : Execute({GoodRequest(), GoodRequest()})) {
    ExpectFailed(fate, TRITONSERVER_ERROR_INTERNAL, "out of memory");
  }
}

TEST_F(ExecutionTest, AnAnswerThatCannotBeWrittenFailsItsRequestAlone) {
  Start();
  FakeTriton::FailAt("OutputBuffer", 3);  // Two for each request.
  const std::vector<Fate> fates = Execute({GoodRequest(), GoodRequest(), GoodRequest()});
  ExpectGood(fates[0]);
  ExpectFailed(fates[1], TRITONSERVER_ERROR_UNAVAILABLE, "OutputBuffer was asked to fail");
  ExpectGood(fates[2]);
}

TEST_F(ExecutionTest, ARequestThatCannotBeReadFailsAlone) {
  Start();
  FakeTriton::FailAt("InputBuffer", 2);
  const std::vector<Fate> fates = Execute({GoodRequest(), GoodRequest()});
  ExpectFailed(fates[0], TRITONSERVER_ERROR_UNAVAILABLE, "InputBuffer was asked to fail");
  ExpectGood(fates[1]);
}

TEST_F(ExecutionTest, WhatTheServerHasNoResponseForIsReleasedAllTheSame) {
  Start();
  FakeTriton::FailAt("ResponseNew");
  const std::vector<Fate> fates = Execute({GoodRequest(), GoodRequest()});
  EXPECT_EQ(fates[0].responses, 0);
  EXPECT_EQ(fates[0].releases, 1);
  EXPECT_FALSE(fates[0].reported_success);
  ExpectGood(fates[1]);
  EXPECT_EQ(FakeTriton::log().back(), "an answer failed: ResponseNew was asked to fail");
}

TEST_F(ExecutionTest, ALongMessageIsCutAsInEveryProtocol) {
  Start();
  TRITONBACKEND_Request request = GoodRequest();
  request.inputs[0].name = std::string(5000, 'x');
  const Fate fate = Execute(request);
  ExpectAnswered(fate);
  EXPECT_EQ(fate.message.size(), 2003U);
  EXPECT_TRUE(fate.message.ends_with("..."));
}

}  // namespace
}  // namespace embershard::triton
