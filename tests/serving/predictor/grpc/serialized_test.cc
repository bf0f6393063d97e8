#include "grpc/embershard/serialized.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "batching/fake_model.h"
#include "embershard/v1/predictor.pb.h"
#include "grpc/serving_fixture.h"

namespace embershard::rpc {
namespace {

TEST(Serialized, RunsMessagesAsOneBatchAndRefusesTheBadAmongThem) {
  auto model = std::make_unique<FakeModel>();
  std::vector<size_t> sizes;
  model->before_run = [&sizes](const Slot& slot) {
    sizes.push_back(slot.requests);
    return Status();
  };
  auto engine = Engine::Start(std::move(model), {});
  ASSERT_TRUE(engine.ok());

  v1::PredictRequest stale = PackedMessage();
  stale.mutable_packed()->set_schema(1);
  v1::PredictRequest bad = NamedMessage();
  bad.set_num_examples(0);
  const std::vector<std::string> messages = {NamedMessage().SerializeAsString(), "\xff\xff",
                                             stale.SerializeAsString(), bad.SerializeAsString(),
                                             PackedMessage().SerializeAsString()};
  const std::vector<std::string_view> views(messages.begin(), messages.end());
  const auto answers = PredictSerialized(*ServedModels::Of(std::move(*engine)), views);
  ASSERT_EQ(answers.size(), 5U);
  EXPECT_EQ(sizes, std::vector<size_t>{2});
  for (const size_t good : {0U, 4U}) {
    ASSERT_TRUE(answers[good].ok()) << answers[good].status().message();
    v1::PredictResponse response;
    ASSERT_TRUE(response.ParseFromString(*answers[good]));
    ExpectGood(grpc::Status::OK, response);
  }
  EXPECT_EQ(answers[1].status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(answers[1].status().message(),
            "expected a PredictRequest message, got 2 bytes that are none");
  EXPECT_EQ(answers[2].status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(answers[3].status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(answers[3].status().message(), "num_examples: expected 1..8, got 0");
}

TEST(Serialized, AnswersNothingWithNothing) {
  auto engine = Engine::Start(std::make_unique<FakeModel>(), {});
  ASSERT_TRUE(engine.ok());
  EXPECT_TRUE(PredictSerialized(*ServedModels::Of(std::move(*engine)), {}).empty());
}

TEST(Serialized, DescribesTheModel) {
  auto engine = Engine::Start(std::make_unique<FakeModel>(), {});
  ASSERT_TRUE(engine.ok());
  v1::GetModelResponse model;
  ASSERT_TRUE(model.ParseFromString(GetModelSerialized(**engine)));
  EXPECT_EQ(model.model(), "fake");
  EXPECT_EQ(model.inputs_size(), 8);
}

}  // namespace
}  // namespace embershard::rpc
