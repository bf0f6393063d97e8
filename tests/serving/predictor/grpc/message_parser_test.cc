// Messages that are not ours, or need far more memory than their bytes, are refused before parsing.

#include <grpcpp/support/slice.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "grpc/predict/wire_messages.h"
#include "grpc/serving_fixture.h"
#include "inference/open_inference.pb.h"

namespace embershard::rpc {
namespace {

// In slices of some bytes, as they come from a connection.
grpc::ByteBuffer Bytes(const std::string& text, size_t slice_bytes = 1000) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < text.size(); at += slice_bytes) {
    slices.emplace_back(text.substr(at, slice_bytes));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

std::string Repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

constexpr char kNotARequest[] = "the message is not a PredictRequest";
constexpr char kTooMany[] = "the message: expected at most 65536 fields, got more";
constexpr char kTooManyValues[] =
    "the message: expected at most 2097152 values in varints, which can come as bytes, got more";

void ExpectRefused(const std::string& bytes, const std::string& message) {
  grpc::ByteBuffer buffer = Bytes(bytes);
  v1::PredictRequest request;
  const Status status = ParseMessage(&buffer, &request);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), message);
  EXPECT_EQ(status.reason(), StatusReason::kMalformed);
  EXPECT_EQ(request.ByteSizeLong(), 0U);
  EXPECT_EQ(buffer.Length(), 0U);
}

TEST(ParseMessage, GivesWhatWasSentHoweverItIsCut) {
  for (const v1::PredictRequest& sent : {NamedMessage(), PackedMessage()}) {
    const std::string bytes = sent.SerializeAsString();
    for (const size_t slice_bytes : {size_t{1}, size_t{7}, bytes.size()}) {
      grpc::ByteBuffer buffer = Bytes(bytes, slice_bytes);
      v1::PredictRequest request;
      ASSERT_TRUE(ParseMessage(&buffer, &request).ok());
      EXPECT_EQ(request.SerializeAsString(), bytes);
      EXPECT_EQ(buffer.Length(), 0U);
    }
  }
  grpc::ByteBuffer nothing = Bytes("");
  v1::PredictRequest request;
  EXPECT_TRUE(ParseMessage(&nothing, &request).ok());
}

TEST(ParseMessage, RefusesWhatIsNoMessage) {
  ExpectRefused("\xff\xff\xff\xff", kNotARequest);
  ExpectRefused(NamedMessage().SerializeAsString() + "\x32", kNotARequest);
  // Announces 127 bytes.
  ExpectRefused(NamedMessage().SerializeAsString() + "\x32\x7f", kNotARequest);
  ExpectRefused("\x32\xff\xff\xff\xff\x0f", kNotARequest);  // Announces 4 GiB less one byte.
  ExpectRefused("\x32\x02\x0a\x05", kNotARequest);          // A name longer than its message.
  ExpectRefused("\x7b\x7c", kNotARequest);                  // A group.
  ExpectRefused("\x32\x02\x7b\x7c", kNotARequest);          // A group in an input.
  // The id is read before the message ends in the middle of a field.
  ExpectRefused(std::string("\x42\x02\xff\xfe\x20", 5), kNotARequest);
}

TEST(ParseMessage, RefusesMoreFieldsThanAnyRequestHas) {
  constexpr int kMost = kMessageFieldsMax;
  // Three kinds of inputs, and an output.
  for (const std::string field : {"\x32", "\x3a", "\x52", "\x2a"}) {
    const std::string empty = field + std::string(1, '\0');
    ExpectRefused(Repeated(empty, kMost + 1), kTooMany);
    grpc::ByteBuffer buffer = Bytes(Repeated(empty, kMost));
    v1::PredictRequest request;
    EXPECT_TRUE(ParseMessage(&buffer, &request).ok());
  }
  ExpectRefused(Repeated("\x78\x01", kMost + 1), kTooMany);  // An unknown field.
  v1::PredictRequest message = NamedMessage();
  v1::DenseValues* const dense = message.add_dense();
  for (int i = 0; i < kMost; ++i) {
    dense->GetReflection()->MutableUnknownFields(dense)->AddVarint(900, 1);
  }
  ExpectRefused(message.SerializeAsString(), kTooMany);
}

TEST(ParseMessage, CountsTheFieldsOfEveryProtocolAtAnyDepth) {
  inference::ModelInferRequest sent;
  auto* const values = sent.add_inputs()->mutable_contents();
  for (int i = 0; i < kMessageFieldsMax - 3; ++i) values->add_bytes_contents("");
  const std::string enough =
      sent.SerializeAsString();  // With the input and its contents, one less.
  for (const int more : {1, 2}) {
    grpc::ByteBuffer buffer = Bytes(enough + Repeated(std::string("\x22\0", 2), more));
    inference::ModelInferRequest request;
    const Status status = ParseMessage(&buffer, &request);
    EXPECT_EQ(status.message(), more == 1 ? "" : kTooMany);
    EXPECT_EQ(request.inputs_size(), more == 1 ? 1 : 0);
  }
  grpc::ByteBuffer garbage = Bytes("\xff\xff");
  EXPECT_EQ(ParseMessage(&garbage, &sent).message(), "the message is not a ModelInferRequest");
}

// The number of packed varints of any kind bounds their memory.
using Contents = inference::InferTensorContents;

void ExpectValuesBounded(const std::function<void(Contents*, int)>& add) {
  for (const int more : {0, 1}) {
    inference::ModelInferRequest sent;
    // The limit is the message's: both inputs count.
    add(sent.add_inputs()->mutable_contents(), 1000);
    add(sent.add_inputs()->mutable_contents(), kMessageValuesMax - 1000 + more);
    grpc::ByteBuffer buffer = Bytes(sent.SerializeAsString(), 1 << 14);
    inference::ModelInferRequest request;
    const Status status = ParseMessage(&buffer, &request);
    EXPECT_EQ(status.code(), more == 0 ? StatusCode::kOk : StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), more == 0 ? "" : kTooManyValues);
    EXPECT_EQ(request.inputs_size(), more == 0 ? 2 : 0);
  }
}

TEST(ParseMessage, RefusesMoreVarintsThanMemoryIsToBeTakenFor) {
  ExpectValuesBounded([](Contents* to, int values) {
    to->mutable_int64_contents()->Resize(values, 0);  // A byte each, eight once parsed.
  });
  ExpectValuesBounded([](Contents* to, int values) {
    to->mutable_int64_contents()->Resize(values, -1);  // Ten bytes each.
  });
  ExpectValuesBounded(
      [](Contents* to, int values) { to->mutable_bool_contents()->Resize(values, true); });
  ExpectValuesBounded(
      [](Contents* to, int values) { to->mutable_uint_contents()->Resize(values, 300); });
}

TEST(ParseMessage, BoundsShapesToo) {
  inference::ModelInferRequest sent;
  sent.add_inputs()->mutable_shape()->Resize(kMessageValuesMax + 1, 1);
  grpc::ByteBuffer buffer = Bytes(sent.SerializeAsString(), 1 << 14);
  inference::ModelInferRequest request;
  EXPECT_EQ(ParseMessage(&buffer, &request).message(), kTooManyValues);
}

TEST(ParseMessage, FloatsAndBytesAreNoVarints) {
  inference::ModelInferRequest sent;
  auto* const contents = sent.add_inputs()->mutable_contents();
  contents->mutable_fp32_contents()->Resize(kMessageValuesMax + 1, 0);
  sent.add_raw_input_contents(std::string(kMessageValuesMax + 1, 1));
  grpc::ByteBuffer buffer = Bytes(sent.SerializeAsString(), 1 << 14);
  inference::ModelInferRequest request;
  EXPECT_TRUE(ParseMessage(&buffer, &request).ok());
  EXPECT_EQ(request.inputs(0).contents().fp32_contents_size(), kMessageValuesMax + 1);
}

TEST(ParseMessage, CountsTheFieldsThatTheTypeHasNot) {
  inference::ModelInferRequest sent;
  sent.set_id("mine");
  auto* const input = sent.add_inputs();
  input->add_shape(3);
  for (google::protobuf::Message* const message :
       {static_cast<google::protobuf::Message*>(&sent),
        static_cast<google::protobuf::Message*>(input)}) {
    message->GetReflection()->MutableUnknownFields(message)->AddVarint(900, 1);
    message->GetReflection()->MutableUnknownFields(message)->AddLengthDelimited(901, "later");
  }
  // Fields of ours by their numbers, of another type: an id that is a number, a shape of floats.
  const std::string bytes = sent.SerializeAsString() + "\x18\x01" + "\x2a\x05\x1d\x01\x02\x03\x04";
  grpc::ByteBuffer buffer = Bytes(bytes);
  inference::ModelInferRequest request;
  size_t unknown_fields = 0;
  ASSERT_TRUE(ParseMessage(&buffer, &request, &unknown_fields).ok());
  EXPECT_EQ(unknown_fields, 6U);
  EXPECT_EQ(request.inputs_size(), 2);
  // A shape that is not packed is one all the same.
  grpc::ByteBuffer loose = Bytes(std::string("\x2a\x04\x18\x02\x18\x03"));
  ASSERT_TRUE(ParseMessage(&loose, &request, &unknown_fields).ok());
  EXPECT_EQ(unknown_fields, 0U);
  EXPECT_EQ(request.inputs(0).shape_size(), 2);
}

}  // namespace
}  // namespace embershard::rpc
