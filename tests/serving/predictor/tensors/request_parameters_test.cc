#include "tensors/request_parameters.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace embershard {
namespace {

std::string Refusal(std::string_view key, const ParameterValue& value) {
  RequestParameters read;
  const Status status = ReadParameter(key, value, &read);
  EXPECT_NE(status.ok(), status.code() == StatusCode::kInvalidArgument);
  return status.message();
}

TEST(RequestParameters, AreRead) {
  RequestParameters read;
  ASSERT_TRUE(ReadParameter("num_examples", int64_t{7}, &read).ok());
  ASSERT_TRUE(ReadParameter("priority", uint64_t{2}, &read).ok());
  ASSERT_TRUE(ReadParameter("timeout", int64_t{5}, &read).ok());
  EXPECT_EQ(read.num_examples, 7);
  EXPECT_EQ(read.priority, 2);
}

TEST(RequestParameters, ATrafficKeyIsATextOfBoundedSize) {
  const std::string longest(kTrafficKeyBytesMax, 'k');
  EXPECT_EQ(Refusal("traffic_key", std::string_view(longest)), "");
  const std::string refused = "parameter 'traffic_key': expected a text of at most 1024 bytes";
  EXPECT_EQ(Refusal("traffic_key", std::string_view(longest + "k")), refused);
  EXPECT_EQ(Refusal("traffic_key", int64_t{17}), refused);
}

TEST(RequestParameters, OfSequencesMayBeThereIfTheySayNothing) {
  EXPECT_EQ(Refusal("sequence_id", int64_t{0}), "");
  EXPECT_EQ(Refusal("sequence_id", std::string_view("")), "");
  EXPECT_EQ(Refusal("sequence_start", false), "");
  EXPECT_EQ(Refusal("triton_enable_empty_final_response", true), "");
}

TEST(RequestParameters, AreRefusedWithWordsThatSayWhich) {
  const std::string whole = "expected a whole number";
  EXPECT_EQ(Refusal("num_examples", 2.0), "parameter 'num_examples': " + whole);
  EXPECT_EQ(Refusal("num_examples", true), "parameter 'num_examples': " + whole);
  EXPECT_EQ(Refusal("priority", std::string_view("1")), "parameter 'priority': " + whole);
  EXPECT_EQ(Refusal("priority", {}), "parameter 'priority': " + whole);
  EXPECT_EQ(Refusal("priority", std::numeric_limits<uint64_t>::max()),
            "parameter 'priority': " + whole);
  EXPECT_EQ(Refusal("timeout", int64_t{-1}),
            "parameter 'timeout': expected microseconds, a whole number of at least 0");
  EXPECT_EQ(Refusal("sequence_id", std::string_view("a")),
            "parameter 'sequence_id': expected none: sequences of requests are not served");
  EXPECT_EQ(Refusal("sequence_end", true),
            "parameter 'sequence_end': expected none: sequences of requests are not served");
  EXPECT_EQ(Refusal("prioriti", int64_t{1}),
            "parameter 'prioriti': expected one of 'num_examples', 'priority', 'timeout', "
            "'traffic_key'");
}

}  // namespace
}  // namespace embershard
