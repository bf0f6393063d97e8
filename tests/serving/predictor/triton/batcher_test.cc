// The backend's decisions for Triton's dynamic batcher.

#include <gtest/gtest.h>

#include <vector>

#include "triton/backend_fixture.h"
#include "triton/triton_model.h"

namespace embershard::triton {
namespace {

TEST(BatchBudget, TakesRequestsUntilTheExamplesAreUsedUp) {
  BatchBudget budget({.examples = 10, .ids = 1000});
  EXPECT_TRUE(budget.Take({.requests = 1, .examples = 6, .ids = 1}));
  EXPECT_TRUE(budget.Take({.requests = 1, .examples = 4, .ids = 1}));
  EXPECT_FALSE(budget.Take({.requests = 1, .examples = 1, .ids = 0}));
  EXPECT_EQ(budget.taken().requests, 2U);
}

TEST(BatchBudget, TakesRequestsUntilTheIdsAreUsedUp) {
  BatchBudget budget({.examples = 1000, .ids = 10});
  EXPECT_TRUE(budget.Take({.requests = 1, .examples = 1, .ids = 9}));
  EXPECT_FALSE(budget.Take({.requests = 1, .examples = 1, .ids = 2}));
  EXPECT_TRUE(budget.Take({.requests = 1, .examples = 1, .ids = 1}));
}

TEST(BatchBudget, TakesTheFirstRequestHoweverLargeItIs) {
  BatchBudget budget({.examples = 10, .ids = 10});
  EXPECT_TRUE(budget.Take({.requests = 1, .examples = 11, .ids = 11}));
  EXPECT_FALSE(budget.Take({.requests = 1, .examples = 0, .ids = 0}));
}

class BatcherTest : public BackendTest {
 protected:
  // Offers the requests to one batch in turn. True for each that joins it.
  std::vector<bool> Offer(const std::vector<TRITONBACKEND_Request>& requests) {
    TRITONBACKEND_Batcher* batcher = nullptr;
    ExpectOk(TRITONBACKEND_ModelBatcherInitialize(&batcher, &model_));
    void* batch = nullptr;
    ExpectOk(TRITONBACKEND_ModelBatchInitialize(batcher, &batch));
    std::vector<bool> joined;
    for (const TRITONBACKEND_Request& request : requests) {
      TRITONBACKEND_Request* const offered = FakeTriton::Take(request);
      bool joins = false;
      ExpectOk(TRITONBACKEND_ModelBatchIncludeRequest(offered, batch, &joins));
      joined.push_back(joins);
      FakeTriton::TakeBack(offered);
    }
    ExpectOk(TRITONBACKEND_ModelBatchFinalize(batch));
    ExpectOk(TRITONBACKEND_ModelBatcherFinalize(batcher));
    return joined;
  }
};

TEST_F(BatcherTest, ExamplesAreCounted) {
  Start(Parameter("max_batch_examples", "7"));
  const std::vector<bool> expected = {true, true, true, false, true};
  EXPECT_EQ(Offer({GoodRequest(), GoodRequest(), GoodRequest(), GoodRequest(),
                   ToTritonRequest(ManyInputs(1))}),
            expected);
}

TEST_F(BatcherTest, IdsAreCounted) {
  Start(Parameter("max_batch_ids", "20"));  // 7 ids a request.
  const std::vector<bool> expected = {true, true, false};
  EXPECT_EQ(Offer({GoodRequest(), GoodRequest(), GoodRequest()}), expected);
}

TEST_F(BatcherTest, APackedRequestCountsAsOneByName) {
  Start(Parameter("max_batch_examples", "4"));
  const SampleRequest sample = GoodSample();
  TRITONBACKEND_Request packed;
  AddInput(&packed, "DENSE", sample.example_dense, {1, 2, 2});
  AddInput(&packed, "LENGTHS", sample.lengths);
  AddInput(&packed, "VALUES", sample.values);
  const std::vector<bool> expected = {true, true, false};
  EXPECT_EQ(Offer({packed, packed, packed}), expected);
}

TEST_F(BatcherTest, TheFirstRequestAlwaysJoins) {
  Start(Parameter("max_batch_examples", "1"));
  const std::vector<bool> expected = {true, false};
  EXPECT_EQ(Offer({GoodRequest(), GoodRequest()}), expected);
}

TEST_F(BatcherTest, NumberOfExamplesThatIsStatedCounts) {
  Start(Parameter("max_batch_examples", "4"));
  TRITONBACKEND_Request request;
  request.parameters = {{"num_examples", int64_t{3}}};
  const std::vector<bool> expected = {true, false};
  EXPECT_EQ(Offer({request, request}), expected);
}

TEST_F(BatcherTest, WhatCannotBeReadJoinsAndIsRefusedWhenItRuns) {
  Start(Parameter("max_batch_examples", "2"));
  TRITONBACKEND_Request unknown;
  AddInput(&unknown, "prize", std::vector<float>{1, 2, 3});
  TRITONBACKEND_Request negative = GoodRequest();
  for (TRITONBACKEND_Input& input : negative.inputs) input.shape = {1, -4};
  TRITONBACKEND_Request misspelt = GoodRequest();
  misspelt.parameters = {{"num_exampels", int64_t{2}}};
  TRITONBACKEND_Request less = GoodRequest();
  less.parameters = {{"num_examples", int64_t{-1}}};
  const std::vector<bool> expected = {true, true, true, true, true, false};
  EXPECT_EQ(Offer({unknown, negative, misspelt, less, GoodRequest(), GoodRequest()}), expected);
}

TEST_F(BatcherTest, BatchesDoNotCountForEachOther) {
  Start(Parameter("max_batch_examples", "2"));
  const std::vector<bool> expected = {true, false};
  EXPECT_EQ(Offer({GoodRequest(), GoodRequest()}), expected);
  EXPECT_EQ(Offer({GoodRequest(), GoodRequest()}), expected);
}

TEST_F(BatcherTest, ABatchOfWhichNothingIsKnownTakesAll) {
  Start(Parameter("max_batch_examples", "2"));
  TRITONBACKEND_Request* const request = FakeTriton::Take(GoodRequest());
  bool joins = false;
  ExpectOk(TRITONBACKEND_ModelBatchIncludeRequest(request, nullptr, &joins));
  EXPECT_TRUE(joins);
  ExpectOk(TRITONBACKEND_ModelBatchFinalize(nullptr));
  FakeTriton::TakeBack(request);
}

TEST_F(BatcherTest, AModelOfAnotherBackendIsRefused) {
  TRITONBACKEND_Batcher* batcher = nullptr;
  EXPECT_EQ(Taken(TRITONBACKEND_ModelBatcherInitialize(&batcher, &model_)),
            "batchstrategy.so: expected a model of this backend");
}

}  // namespace
}  // namespace embershard::triton
