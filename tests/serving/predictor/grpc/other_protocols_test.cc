// The protocols of others, through the real server, against an answer that was added up by hand.

#include "grpc/other_protocols.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "grpc/predict/wire_messages.h"
#include "inference/open_inference.grpc.pb.h"
#include "torchrec/predictor.grpc.pb.h"

namespace embershard::rpc {
namespace {

TEST(OpenInference, GivesTheScoresInEveryForm) {
  Serving serving;
  const auto stub = inference::GRPCInferenceService::NewStub(serving.channel());
  for (const inference::ModelInferRequest& request :
       {InferByName(), InferPacked(), Typed(InferByName()), Typed(InferPacked())}) {
    inference::ModelInferResponse response;
    grpc::ClientContext context;
    const grpc::Status status = stub->ModelInfer(&context, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    ASSERT_EQ(response.raw_output_contents_size(), 2);
    EXPECT_EQ(FloatsOf(response.raw_output_contents(0)), kGoodScores);
    EXPECT_EQ(FloatsOf(response.raw_output_contents(1)), kGoodProfile);
    EXPECT_EQ(response.id(), request.id());
  }
}

TEST(TorchRec, GivesTheScores) {
  Serving serving;
  const auto stub = predictor::Predictor::NewStub(serving.channel());
  predictor::PredictionResponse response;
  grpc::ClientContext context;
  const grpc::Status status = stub->Predict(&context, TorchRecMessage(), &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  const auto& scores = response.predictions().at("default").data();
  const auto& profile = response.predictions().at("profile").data();
  EXPECT_EQ(std::vector<float>(scores.begin(), scores.end()), kGoodScores);
  EXPECT_EQ(std::vector<float>(profile.begin(), profile.end()), kGoodProfile);
}

TEST(OtherProtocols, CountTheBytesThatCameAndWent) {
  Serving serving;
  const auto stub = inference::GRPCInferenceService::NewStub(serving.channel());
  const inference::ModelInferRequest request = InferByName();
  inference::ModelInferResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(stub->ModelInfer(&context, request, &response).ok());
  const TelemetrySnapshot counted = serving.engine()->telemetry().Read();
  EXPECT_EQ(counted.bytes_received, request.ByteSizeLong());
  EXPECT_EQ(counted.bytes_sent, response.ByteSizeLong());
}

using Messages = ArenaMessages<inference::ModelInferRequest, inference::ModelInferResponse>;

void ExpectHeldBytesCover(const inference::ModelInferRequest& request) {
  const std::string bytes = request.SerializeAsString();
  const grpc::Slice slice(bytes);
  grpc::ByteBuffer buffer(&slice, 1);
  Messages messages;
  ASSERT_TRUE(messages.Read(&buffer).ok());
  EXPECT_EQ(messages.received_bytes(), bytes.size());
  EXPECT_GE(messages.held_bytes(), messages.asked().SpaceUsedLong());
}

TEST(ArenaMessages, CountAtLeastWhatTheRequestHolds) {
  for (const auto& request : {InferByName(), InferPacked(), Typed(InferByName())}) {
    ExpectHeldBytesCover(request);
  }
  inference::ModelInferRequest large = InferPacked();
  large.add_raw_input_contents(std::string(5'000'000, 'x'));
  large.add_inputs()->mutable_contents()->mutable_int64_contents()->Resize(100'000, 1);
  ExpectHeldBytesCover(large);
  inference::ModelInferRequest strange;
  auto* const unknown = strange.GetReflection()->MutableUnknownFields(&strange);
  for (int i = 0; i < 10'000; ++i) unknown->AddVarint(900, 1);
  for (int i = 0; i < 10'000; ++i) unknown->AddLengthDelimited(901, "sixteen characters");
  ExpectHeldBytesCover(strange);
}

}  // namespace
}  // namespace embershard::rpc
