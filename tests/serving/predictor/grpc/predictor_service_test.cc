#include <gtest/gtest.h>

#include <string>

#include "grpc/serving_fixture.h"

namespace embershard::rpc {
namespace {

TEST(PredictorService, AnswersTheNamedForm) {
  Serving serving;
  v1::PredictRequest message = NamedMessage();
  message.set_model("fake");
  message.set_version(3);
  message.set_request_id("r-17");
  v1::PredictResponse response;
  ExpectGood(serving.Predict(message, &response), response);
  EXPECT_EQ(response.model(), "fake");
  EXPECT_EQ(response.version(), 3);
  EXPECT_EQ(response.request_id(), "r-17");
  EXPECT_EQ(response.outputs(0).name(), "score");
  EXPECT_EQ(response.outputs(0).shape_size(), 1);
  EXPECT_EQ(response.outputs(0).shape(0), 2);
  EXPECT_EQ(response.outputs(1).name(), "profile");
  ASSERT_EQ(response.outputs(1).shape_size(), 2);
  EXPECT_EQ(response.outputs(1).shape(0), 1);
  EXPECT_EQ(response.outputs(1).shape(1), 2);
  ASSERT_EQ(response.unknown_ids_size(), 1);
  EXPECT_EQ(response.unknown_ids(0).feature(), "genre");
  EXPECT_EQ(response.unknown_ids(0).count(), 1U);
  EXPECT_EQ(response.timing().lookup_us(), 11U);
  EXPECT_EQ(response.timing().dense_us(), 22U);
  EXPECT_GE(response.timing().total_us(), response.timing().queue_us());
}

TEST(PredictorService, AnswersThePackedFormAlike) {
  Serving serving;
  v1::PredictResponse response;
  ExpectGood(serving.Predict(PackedMessage(), &response), response);
}

TEST(PredictorService, GivesOnlyTheOutputsWantedInTheSchemasOrder) {
  Serving serving;
  v1::PredictRequest message = NamedMessage();
  message.add_outputs("profile");
  v1::PredictResponse response;
  ASSERT_TRUE(serving.Predict(message, &response).ok());
  ASSERT_EQ(response.outputs_size(), 1);
  EXPECT_EQ(FloatsOf(response.outputs(0).values()), kGoodProfile);

  message.add_outputs("score");
  message.add_outputs("profile");
  ExpectGood(serving.Predict(message, &response), response);
}

struct Refusal {
  const char* name;
  v1::PredictRequest (*message)();
  void (*spoil)(v1::PredictRequest*);
  grpc::StatusCode code;
  const char* text;
};

void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.name; }

class PredictorServiceRefuses : public ::testing::TestWithParam<Refusal> {};

TEST_P(PredictorServiceRefuses, WithCodeAndStory) {
  Serving serving;
  v1::PredictRequest message = GetParam().message();
  GetParam().spoil(&message);
  v1::PredictResponse response;
  const grpc::Status status = serving.Predict(message, &response);
  EXPECT_EQ(status.error_code(), GetParam().code);
  EXPECT_EQ(status.error_message(), GetParam().text);
  ExpectGood(serving.Predict(NamedMessage(), &response), response);
}

const Refusal kRefusals[] = {
    {"unknown_model", NamedMessage, [](auto* in) { in->set_model("other"); },
     grpc::StatusCode::NOT_FOUND, "model 'other' is not served here, expected 'fake' version 3"},
    {"unknown_version", PackedMessage, [](auto* in) { in->set_version(2); },
     grpc::StatusCode::NOT_FOUND, "version 2 is not served here, expected 'fake' version 3"},
    {"unknown_label", NamedMessage, [](auto* in) { in->set_label("stable"); },
     grpc::StatusCode::NOT_FOUND,
     "label 'stable' is not defined here, expected none or 'fake' version 3"},
    {"unknown_output", NamedMessage, [](auto* in) { in->add_outputs("scores"); },
     grpc::StatusCode::NOT_FOUND,
     "output 'scores' is not there, expected one of 'score', 'profile'"},
    {"packed_and_named", PackedMessage, [](auto* in) { in->add_dense()->set_name("age"); },
     grpc::StatusCode::INVALID_ARGUMENT, "request: expected packed or named inputs, got both"},
    {"stale_schema", PackedMessage, [](auto* in) { in->mutable_packed()->set_schema(0xab); },
     grpc::StatusCode::FAILED_PRECONDITION,
     "packed.schema: expected 9f86d081884c7d65, got 00000000000000ab; ask GetModel for the schema "
     "being served"},
    {"packed_bytes_that_are_no_values", PackedMessage,
     [](auto* in) { in->mutable_packed()->mutable_values()->pop_back(); },
     grpc::StatusCode::INVALID_ARGUMENT, "packed.values: expected a multiple of 8 bytes, got 55"},
    {"packed_lengths_missing", PackedMessage,
     [](auto* in) { in->mutable_packed()->clear_lengths(); }, grpc::StatusCode::INVALID_ARGUMENT,
     "packed.lengths: expected 8 (one for each list of each input), got 0"},
    {"packed_without_examples", PackedMessage, [](auto* in) { in->set_num_examples(0); },
     grpc::StatusCode::INVALID_ARGUMENT,
     "num_examples: expected 1..8, got 0; without examples, name only outputs in request scope: "
     "'profile'"},
    {"unknown_dense_input", NamedMessage, [](auto* in) { in->add_dense()->set_name("agee"); },
     grpc::StatusCode::INVALID_ARGUMENT,
     "feature 'agee': not a dense input of the model, expected one of 'age', 'price', 'discount'"},
    {"unknown_sparse_input", NamedMessage, [](auto* in) { in->add_sparse()->set_name("age"); },
     grpc::StatusCode::INVALID_ARGUMENT,
     "feature 'age': not a sparse input of the model, expected one of 'user', 'item', 'history', "
     "'genre', 'tag'"},
    {"dense_input_twice", NamedMessage, [](auto* in) { in->add_dense()->set_name("age"); },
     grpc::StatusCode::INVALID_ARGUMENT, "feature 'age': given twice, expected once"},
    {"sparse_input_twice", NamedMessage, [](auto* in) { in->add_sparse()->set_name("item"); },
     grpc::StatusCode::INVALID_ARGUMENT, "feature 'item': given twice, expected once"},
    {"dense_bytes_that_are_no_values", NamedMessage,
     [](auto* in) { in->mutable_dense(1)->set_values("1234567"); },
     grpc::StatusCode::INVALID_ARGUMENT,
     "feature 'price': values: expected a multiple of 4 bytes, got 7"},
    {"length_bytes_that_are_no_values", NamedMessage,
     [](auto* in) { in->mutable_sparse(1)->set_lengths("123"); },
     grpc::StatusCode::INVALID_ARGUMENT,
     "feature 'item': lengths: expected a multiple of 4 bytes, got 3"},
    {"weight_bytes_that_are_no_values", NamedMessage,
     [](auto* in) { in->mutable_sparse(3)->set_weights("1"); }, grpc::StatusCode::INVALID_ARGUMENT,
     "feature 'genre': weights: expected a multiple of 4 bytes, got 1"},
    {"invalid", NamedMessage,
     [](auto* in) { in->mutable_sparse(1)->set_values(BytesOf(std::vector<int64_t>{1, -5})); },
     grpc::StatusCode::INVALID_ARGUMENT,
     "feature 'item': id -5 at example 1, position 0 is not in 0..1999 (policy: reject)"},
    {"missing_dense", NamedMessage, [](auto* in) { in->clear_dense(); },
     grpc::StatusCode::INVALID_ARGUMENT,
     "feature 'age': missing: expected 1 values, got none (it has no default)"},
};

INSTANTIATE_TEST_SUITE_P(, PredictorServiceRefuses, testing::ValuesIn(kRefusals),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(PredictorService, CutsAMessageThatHeadersCouldNotCarry) {
  Serving serving;
  v1::PredictRequest message = NamedMessage();
  std::string name;
  for (int i = 0; i < 100000; ++i) name += "ä";
  message.add_dense()->set_name(name);
  v1::PredictResponse response;
  const grpc::Status status = serving.Predict(message, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_LE(status.error_message().size(), 2003U);
  EXPECT_TRUE(status.error_message().ends_with("ä..."));
}

TEST(PredictorService, DescribesTheModel) {
  EngineOptions options;
  options.batching.max_batch_ids = 10;
  Serving serving(std::make_unique<FakeModel>(), options, {.max_message_bytes = 1 << 20});
  grpc::ClientContext context;
  v1::GetModelResponse model;
  ASSERT_TRUE(serving.stub()->GetModel(&context, v1::GetModelRequest(), &model).ok());
  EXPECT_EQ(model.model(), "fake");
  EXPECT_EQ(model.version(), 3);
  EXPECT_EQ(model.schema(), 0x9f86d081884c7d65U);
  ASSERT_EQ(model.inputs_size(), 8);
  EXPECT_EQ(model.inputs(0).name(), "age");
  EXPECT_EQ(model.inputs(0).scope(), v1::SCOPE_REQUEST);
  EXPECT_TRUE(model.inputs(0).has_dense());
  EXPECT_FALSE(model.inputs(0).dense().has_default_());
  EXPECT_EQ(model.inputs(2).scope(), v1::SCOPE_EXAMPLE);
  EXPECT_EQ(model.inputs(2).dense().default_(), 0.25F);
  EXPECT_EQ(model.inputs(5).name(), "history");
  EXPECT_EQ(model.inputs(5).sparse().max_ids(), 3U);
  EXPECT_EQ(model.inputs(5).sparse().keep(), v1::KEEP_LAST);
  EXPECT_EQ(model.inputs(5).sparse().known_ids(), 100U);
  EXPECT_EQ(model.inputs(6).sparse().known_ids(), 49U);  // Not the row for unknown ones.
  EXPECT_FALSE(model.inputs(5).sparse().weighted());
  EXPECT_TRUE(model.inputs(6).sparse().weighted());
  EXPECT_EQ(model.inputs(7).sparse().keep(), v1::KEEP_REJECT);
  ASSERT_EQ(model.outputs_size(), 2);
  EXPECT_EQ(model.outputs(0).name(), "score");
  EXPECT_EQ(model.outputs(0).shape_size(), 0);
  EXPECT_EQ(model.outputs(1).scope(), v1::SCOPE_REQUEST);
  EXPECT_EQ(model.outputs(1).shape(0), 2);
  EXPECT_EQ(model.limits().max_examples(), 8U);
  EXPECT_EQ(model.limits().max_ids(), 20U);
  EXPECT_EQ(model.limits().max_message_bytes(), 1U << 20);
}

TEST(PredictorService, DescribesNoOtherModel) {
  Serving serving;
  grpc::ClientContext context;
  v1::GetModelRequest message;
  message.set_model("other");
  v1::GetModelResponse model;
  const grpc::Status status = serving.stub()->GetModel(&context, message, &model);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message(), "model 'other' is not served here, expected 'fake' version 3");
}

TEST(PredictorService, TellsAModelsFailureToItsClientAndGoesOn) {
  auto model = std::make_unique<FakeModel>();
  std::atomic<int> runs = 0;
  model->before_run = [&runs](const Slot&) {
    return ++runs == 1 ? Internal("the dense program failed") : Status();
  };
  Serving serving(std::move(model));
  v1::PredictResponse response;
  const grpc::Status status = serving.Predict(NamedMessage(), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(status.error_message(), "the dense program failed");
  ExpectGood(serving.Predict(NamedMessage(), &response), response);
}

}  // namespace
}  // namespace embershard::rpc
