#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "batching/fake_model.h"
#include "embershard/v1/predictor.pb.h"
#include "grpc/embershard/predict_messages.h"
#include "grpc/serving_fixture.h"
#include "tensors/request_parameters.h"

namespace embershard::rpc {
namespace {

// Compares `held_bytes` with protobuf's own account of the message.
void ExpectHeldAbout(const v1::PredictRequest& message, uint64_t slack) {
  auto engine = Engine::Start(std::make_unique<FakeModel>(), {});
  ASSERT_TRUE(engine.ok());
  Request request;
  const Status status = ParseRequest(**engine, message, &request);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_GE(request.held_bytes, message.SpaceUsedLong());
  EXPECT_LE(request.held_bytes, message.SpaceUsedLong() + slack);
}

// Nine strings, each with the 15 characters that fit into the string itself.
constexpr uint64_t kStrings = 9 * (sizeof(std::string) + 15);

TEST(ParseRequest, APackedRequestHoldsItsStrings) {
  v1::PredictRequest message = PackedMessage();
  ExpectHeldAbout(message, kStrings);
  message.set_request_id(std::string(kRequestIdBytesMax, 'x'));
  ExpectHeldAbout(message, kStrings);
  message = PackedMessage();
  message.mutable_packed()->mutable_values()->reserve(1 << 20);
  ExpectHeldAbout(message, kStrings);
}

TEST(ParseRequest, ATrafficKeyHasABoundedSizeAndIsHeld) {
  v1::PredictRequest message = PackedMessage();
  message.set_traffic_key(std::string(kTrafficKeyBytesMax, 'x'));
  ExpectHeldAbout(message, kStrings);
  message.mutable_traffic_key()->push_back('x');
  const auto engine = Engine::Start(std::make_unique<FakeModel>(), {});
  ASSERT_TRUE(engine.ok());
  Request request;
  const Status status = ParseRequest(**engine, message, &request);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "traffic_key: expected at most 1024 bytes, got 1025");
}

TEST(ParseRequest, FieldsThatItDoesNotKnowAreHeldAsWell) {
  constexpr int kFields = 10'000;
  v1::PredictRequest message = PackedMessage();
  for (int i = 0; i < kFields; ++i) {
    message.GetReflection()->MutableUnknownFields(&message)->AddVarint(900, 1);
  }
  ExpectHeldAbout(message, 0);
  message = PackedMessage();
  v1::Packed* const packed = message.mutable_packed();
  for (int i = 0; i < kFields; ++i) {
    packed->GetReflection()->MutableUnknownFields(packed)->AddVarint(900, 1);
  }
  ExpectHeldAbout(message, 0);
}

TEST(ParseRequest, NamedInputsAndNamesOfOutputsAreHeldAsWell) {
  v1::PredictRequest message = NamedMessage();
  ExpectHeldAbout(message, 0);
  message = PackedMessage();
  for (int i = 0; i < 10'000; ++i) message.add_outputs(FakeManifest().schema.outputs[0].name);
  ExpectHeldAbout(message, 0);
}

struct Parsed {
  Status status;
  Priority priority = Priority::kInteractive;
};

Parsed ParsePriority(int number) {
  auto engine = Engine::Start(std::make_unique<FakeModel>(), {});
  v1::PredictRequest message = PackedMessage();
  message.set_priority(static_cast<v1::Priority>(number));
  Request request;
  const Status status = ParseRequest(**engine, message, &request);
  return {status, request.priority};
}

TEST(ParseRequest, ARequestIsInteractiveUnlessItSaysOtherwise) {
  for (const int number : {0, 1}) {
    const Parsed parsed = ParsePriority(number);
    EXPECT_TRUE(parsed.status.ok()) << parsed.status.message();
    EXPECT_EQ(parsed.priority, Priority::kInteractive);
  }
  EXPECT_EQ(ParsePriority(2).priority, Priority::kBackground);
}

TEST(ParseRequest, RefusesAPriorityThatThereIsNot) {
  for (const int number : {3, -1}) {
    const Status status = ParsePriority(number).status;
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), "priority: expected 0..2, got " + std::to_string(number));
  }
}

}  // namespace
}  // namespace embershard::rpc
